const BLOCK = 512;
const FILE = new Set(['0', '\0']);

const text = (block, from, length) => block.toString('latin1', from, from + length).split('\0')[0];

/** The files of a tar archive, as `{name, content}`. Enough of the format for names of up to 255 characters. */
export const readTar = (tar) => {
  const files = [];
  for (let at = 0; at + BLOCK <= tar.length && tar[at] !== 0; ) {
    const header = tar.subarray(at, at + BLOCK);
    const size = Number.parseInt(text(header, 124, 12).trim(), 8);
    if (Number.isNaN(size)) throw new Error('not a tar archive');
    const [prefix, name] = [text(header, 345, 155), text(header, 0, 100)];
    if (FILE.has(String.fromCharCode(header[156]))) {
      files.push({
        name: prefix === '' ? name : `${prefix}/${name}`,
        content: tar.subarray(at + BLOCK, at + BLOCK + size),
      });
    }
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
  return files;
};
