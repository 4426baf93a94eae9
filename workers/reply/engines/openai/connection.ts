import { isIP } from 'node:net';
import { Agent, buildConnector } from 'undici';
import { AddressRefused, guardedLookup, isAllowedPeer } from '../../../../src/webhooks/address-guard.ts';

const CONNECT_MS = 3_000;

/** `connections` is the maximum per provider. Many assistants may share one provider. */
type Options = { allowPrivate: boolean; connections: number };

/** Connections to providers. The address guard of webhooks applies, because owners choose the provider's URL. */
export const openProviderAgent = ({ allowPrivate, connections }: Options): Agent => {
  // HTTP/1.1 only: over HTTP/2, undici would repeat a refused request by itself.
  const settings = { timeout: CONNECT_MS, allowH2: false, lookup: guardedLookup({ allowPrivate }) };
  const connect = buildConnector(settings);
  return new Agent({
    allowH2: false,
    pipelining: 1,
    connections,
    connect: (options, callback) => {
      // `lookup` is not called for an IP address in the URL, so the address is checked here.
      const host = options.hostname.replace(/^\[|\]$/g, '');
      if (isIP(host) !== 0 && !isAllowedPeer(host, { allowPrivate })) {
        callback(new AddressRefused('the provider has an address that is not public'), null);
        return;
      }
      connect(options, (error, socket) => {
        if (error) callback(error, null);
        else if (isAllowedPeer(socket.remoteAddress, { allowPrivate })) callback(null, socket);
        else {
          socket.destroy();
          callback(new AddressRefused('the provider resolves to an address that is not public'), null);
        }
      });
    },
  });
};
