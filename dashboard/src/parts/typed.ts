/** The lines of a field, without empty ones. */
export const linesOf = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');

/** An address with its scheme. People type `example.com/hook`, as into a browser. */
export const withScheme = (text: string): string => {
  const address = text.trim();
  return address === '' || /^[a-z][a-z\d+.-]*:\/\//i.test(address) ? address : `https://${address}`;
};

/** The site of an address. People copy the address of one of its pages. */
export const originOf = (text: string): string => {
  const address = withScheme(text);
  const url = URL.parse(address);
  return url !== null && /^https?:$/.test(url.protocol) ? url.origin : address;
};
