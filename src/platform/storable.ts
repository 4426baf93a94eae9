type Place = { value: unknown; key: string; parent: Place | null };

/** A lone surrogate can be neither stored nor sent on exactly; with NUL, what MongoDB matches by patterns cannot be asked. */
export const isStorableText = (text: string): boolean => text.isWellFormed() && !text.includes('\0');

const pathOf = (place: Place): string => {
  const keys: string[] = [];
  for (let at: Place | null = place; at?.parent; at = at.parent) keys.unshift(at.key);
  return keys.join('.');
};

/** The field, as a dotted path, of the first string that cannot be stored. A loop, since JSON may nest deeper than calls can. */
export const findUnstorable = (whole: unknown): string | null => {
  const open: Place[] = [{ value: whole, key: '', parent: null }];
  for (let place = open.pop(); place; place = open.pop()) {
    const { value } = place;
    if (typeof value === 'string' && !isStorableText(value)) return pathOf(place);
    if (typeof value !== 'object' || value === null) continue;
    for (const [key, inner] of Object.entries(value).toReversed()) open.push({ value: inner, key, parent: place });
  }
  return null;
};
