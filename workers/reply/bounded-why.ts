/** Maximum length of a reply's `why` as JSON. It is stored and logged with every reply. */
export const WHY_MAX = 4_096;
const NAME_MAX = 100;

const jsonLengthOf = (value: unknown): number => {
  try {
    return (JSON.stringify(value) ?? '').length;
  } catch {
    return Number.POSITIVE_INFINITY; // a cycle, or a value that JSON cannot express
  }
};

/** Keeps a `why` that fits. From a larger one, only `engine` and `kind` remain, with `cut: true`. */
export const boundedWhy = (why: Record<string, unknown>): Record<string, unknown> => {
  if (jsonLengthOf(why) <= WHY_MAX) return why;
  const named = ['engine', 'kind'].flatMap((name) => {
    const value = why[name];
    return typeof value === 'string' ? [[name, value.slice(0, NAME_MAX).toWellFormed()]] : [];
  });
  return { ...Object.fromEntries(named), cut: true };
};
