import { isIP } from 'node:net';
import { Agent, buildConnector } from 'undici';
import { AddressRefused, guardedLookup, isAllowedPeer } from '../../../../src/webhooks/address-guard.ts';

const CONNECT_MS = 3_000;

/** `connections` is the maximum per provider. Many assistants may share one provider. */
type Options = { allowPrivate: boolean; connections: number };

/** Connections to providers. The address guard of webhooks applies, because owners choose the provider's URL. */
export const openProviderAgent = ({ allowPrivate, connections }: Options): Agent => {
  // HTTP/1.1: over HTTP/2 the library would send a refused request again by itself.
  const settings = { timeout: CONNECT_MS, allowH2: false, lookup: guardedLookup({ allowPrivate }) };
  const connect = buildConnector(settings);
  return new Agent({
    allowH2: false,
    pipelining: 1,
    connections,
    connect: (options, callback) => {
      // An IP address in the URL skips the look-up.
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
