/** Maximum length of a reply's `why` as JSON. Every reply's `why` is stored and logged. */
export const WHY_MAX = 4_096;
const NAME_MAX = 100;

const jsonLengthOf = (value: unknown): number => {
  try {
    return (JSON.stringify(value) ?? '').length;
  } catch {
    return Number.POSITIVE_INFINITY; // a cycle, or a value that JSON cannot express
  }
};

/** Returns `why` unchanged if it is small enough. Otherwise keeps only `engine` and `kind`, and adds `cut: true`. */
export const boundedWhy = (why: Record<string, unknown>): Record<string, unknown> => {
  if (jsonLengthOf(why) <= WHY_MAX) return why;
  const named = ['engine', 'kind'].flatMap((name) => {
    const value = why[name];
    return typeof value === 'string' ? [[name, value.slice(0, NAME_MAX).toWellFormed()]] : [];
  });
  return { ...Object.fromEntries(named), cut: true };
};
