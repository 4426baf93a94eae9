/** The name of a field as words: `dryRun` is `dry run`. */
export const wordsOf = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
