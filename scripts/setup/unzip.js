import { inflateRawSync } from 'node:zlib';

const END_OF_DIRECTORY = 0x06054b50;
const STORED = 0;

/**
 * The content of one file of a zip archive (a wheel is one), found by the end of its name; null if there is none. Enough
 * of the format for archives below 4 GiB, so that nothing beside Node is needed to unpack.
 */
export const readFromZip = (zip, nameEnds) => {
  let end = zip.length - 22;
  while (end >= 0 && zip.readUInt32LE(end) !== END_OF_DIRECTORY) end--;
  if (end < 0) throw new Error('not a zip archive');
  let at = zip.readUInt32LE(end + 16);
  for (let left = zip.readUInt16LE(end + 10); left > 0; left--) {
    const [nameLength, extraLength, commentLength] = [28, 30, 32].map((offset) => zip.readUInt16LE(at + offset));
    const name = zip.toString('utf8', at + 46, at + 46 + nameLength);
    if (name.endsWith(nameEnds)) {
      const [method, packedSize, header] = [
        zip.readUInt16LE(at + 10),
        zip.readUInt32LE(at + 20),
        zip.readUInt32LE(at + 42),
      ];
      const start = header + 30 + zip.readUInt16LE(header + 26) + zip.readUInt16LE(header + 28);
      const packed = zip.subarray(start, start + packedSize);
      return method === STORED ? packed : inflateRawSync(packed);
    }
    at += 46 + nameLength + extraLength + commentLength;
  }
  return null;
};
