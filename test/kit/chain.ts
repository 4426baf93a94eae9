import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';

/** A DER element with its tag and length. */
const der = (tag: number, ...parts: Buffer[]): Buffer => {
  const content = Buffer.concat(parts);
  const { length } = content;
  const long = length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.of(tag, ...(length < 128 ? [length] : long)), content]);
};

const hex = (text: string): Buffer => Buffer.from(text, 'hex');
const ECDSA_SHA256 = hex('300a06082a8648ce3d040302');
const COMMON_NAME = hex('0603550403');
const nameOf = (name: string): Buffer => der(0x30, der(0x31, der(0x30, COMMON_NAME, der(0x0c, Buffer.from(name)))));
const VALIDITY = der(0x30, der(0x17, Buffer.from('250101000000Z')), der(0x17, Buffer.from('491231235959Z')));

const extensionOf = (kind: string, ...value: Buffer[]): Buffer =>
  der(0x30, hex(`0603${kind}`), der(0x04, der(0x30, ...value)));
const times = (count: number, bytes: string): Buffer[] => Array.from({ length: count }, () => hex(bytes));
const IS_AUTHORITY = extensionOf('551d13', hex('0101ff'));

type Named = { key: KeyObject; issuer?: Buffer; extensions?: Buffer[] };

const certificateOf = (nth: number, { key, issuer = nameOf(`n${nth + 1}`), extensions = [] }: Named, by: KeyObject) => {
  const serial = der(0x02, Buffer.of(nth + 1));
  const version = hex('a003020102');
  const names = [issuer, VALIDITY, nameOf(`n${nth}`)];
  const all = [...(nth > 0 ? [IS_AUTHORITY] : []), ...extensions];
  const parts = [
    ...names,
    key.export({ type: 'spki', format: 'der' }),
    ...(all.length > 0 ? [der(0xa3, der(0x30, ...all))] : []),
  ];
  const body = der(0x30, version, serial, ECDSA_SHA256, ...parts);
  const signature = der(0x03, Buffer.of(0), sign('sha256', body, by));
  const base64 = der(0x30, body, ECDSA_SHA256, signature).toString('base64');
  return `-----BEGIN CERTIFICATE-----\n${base64.match(/.{1,64}/g)?.join('\n') ?? ''}\n-----END CERTIFICATE-----\n`;
};

type Identity = { key: string; cert: string };

const aKey = () => generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
const SERVER_NAME = extensionOf('551d11', hex('82096c6f63616c686f7374'));

/** What a server may have, with the certificates that follow its own. No authority that is trusted has signed them. */
const identityOf = (following: Named[], own = aKey()): Identity => {
  const signer = generateKeyPairSync('ec', { namedCurve: 'secp521r1' });
  const all = [{ key: own.publicKey, extensions: [SERVER_NAME] }, ...following];
  const chain = all.map((one, nth) => certificateOf(nth, one, signer.privateKey));
  return { key: own.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), cert: chain.join('') };
};

/** A certificate of the server, and one for each of these keys. */
export const createChain = (following: KeyObject[], own = aKey()): Identity =>
  identityOf(
    following.map((key) => ({ key })),
    own,
  );

/** A certificate whose issuer has a long name, and many points of revoked certificates that are relative to it. */
export const createPoints = (): Identity => {
  const issuer = der(0x30, ...times(200, '3109300706035504030c00'));
  const extensions = [extensionOf('551d1f', ...times(400, '3004a002a100'))];
  return identityOf([{ key: aKey().publicKey, issuer, extensions }]);
};

/** A certificate with blocks of addresses (RFC 3779). */
export const createNetworks = (): Identity => {
  const blocks = der(0x30, der(0x04, hex('0001')), hex('0500'));
  const value = der(0x30, hex('06082b06010505070107'), der(0x04, der(0x30, blocks)));
  return identityOf([{ key: aKey().publicKey, extensions: [value] }]);
};

/** A certificate with many empty names, and one with many constraints for them. */
export const createConstraints = (): Identity => {
  const names = [extensionOf('551d11', ...times(1_200, '8200'))];
  const constraints = [extensionOf('551d1e', der(0xa1, ...times(400, '3003820161')))];
  return identityOf([names, constraints].map((extensions) => ({ key: aKey().publicKey, extensions })));
};

/** So many certificates of P-521, each signed by the next one. 90 take 0.15 s in one step to check. */
export const createLongChain = (length: number): Identity => {
  const own = aKey();
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'secp521r1' });
  const chain = Array.from({ length }, (_, nth) =>
    certificateOf(nth, { key: nth === 0 ? own.publicKey : publicKey }, privateKey),
  );
  return { key: own.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), cert: chain.join('') };
};
