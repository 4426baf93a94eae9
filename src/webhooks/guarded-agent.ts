import { isIP } from 'node:net';
import { Agent, buildConnector } from 'undici';
import { AddressRefused, guardedLookup, isAllowedPeer, type Resolve } from './address-guard.ts';

const CONNECT_MS = 3_000;

/** `connections` is the maximum per host. `ca`: certificate authorities that replace the public ones. */
type Options = { allowPrivate: boolean; connections: number; resolver?: Resolve; ca?: string; maxHeaderBytes?: number };

/** Connections to hosts that owners choose, as providers and websites. The address guard of webhooks applies. */
export const openGuardedAgent = ({ allowPrivate, connections, resolver, ca, maxHeaderBytes }: Options): Agent => {
  // HTTP/1.1 only: over HTTP/2, undici would repeat a refused request by itself.
  const lookup = guardedLookup({ allowPrivate, resolver });
  const connect = buildConnector({ timeout: CONNECT_MS, allowH2: false, lookup, ...(ca && { ca }) });
  return new Agent({
    allowH2: false,
    pipelining: 1,
    connections,
    ...(maxHeaderBytes && { maxHeaderSize: maxHeaderBytes }),
    connect: (options, callback) => {
      // `lookup` is not called for an IP address in the URL, so the address is checked here.
      const host = options.hostname.replace(/^\[|\]$/g, '');
      if (isIP(host) !== 0 && !isAllowedPeer(host, { allowPrivate })) {
        callback(new AddressRefused('the URL has an address that is not public'), null);
        return;
      }
      connect(options, (error, socket) => {
        if (error) callback(error, null);
        else if (isAllowedPeer(socket.remoteAddress, { allowPrivate })) callback(null, socket);
        else {
          socket.destroy();
          callback(new AddressRefused('the name resolves to an address that is not public'), null);
        }
      });
    },
  });
};
