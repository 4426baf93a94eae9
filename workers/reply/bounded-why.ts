/** JSON of a reply's `why`, at most; what is stored and logged with every reply is compact. */
export const WHY_MAX = 4_096;
const NAME_MAX = 100;

const jsonLengthOf = (value: unknown): number => {
  try {
    return (JSON.stringify(value) ?? '').length;
  } catch {
    return Number.POSITIVE_INFINITY; // a cycle, or what JSON has no form for
  }
};

/** An engine says why, perhaps in another's words: where that is too much, only which engine it was and its kind of reply. */
export const boundedWhy = (why: Record<string, unknown>): Record<string, unknown> => {
  if (jsonLengthOf(why) <= WHY_MAX) return why;
  const named = ['engine', 'kind'].flatMap((name) => {
    const value = why[name];
    return typeof value === 'string' ? [[name, value.slice(0, NAME_MAX).toWellFormed()]] : [];
  });
  return { ...Object.fromEntries(named), cut: true };
};
