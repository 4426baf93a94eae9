type TreeNode = { value: unknown; key: string; parent: TreeNode | null };

/**
 * True if a text can be stored. A lone surrogate is refused, because it can be neither stored nor sent without loss.
 * NUL is refused, because MongoDB does not accept it in patterns.
 */
export const isStorableText = (text: string): boolean => text.isWellFormed() && !text.includes('\0');

const pathOf = (node: TreeNode): string => {
  const keys: string[] = [];
  for (let current: TreeNode | null = node; current?.parent; current = current.parent) keys.unshift(current.key);
  return keys.join('.');
};

/**
 * The dotted path of the first string that cannot be stored. The search is a loop, because JSON may be nested deeper
 * than the call stack allows.
 */
export const findUnstorable = (whole: unknown): string | null => {
  const pending: TreeNode[] = [{ value: whole, key: '', parent: null }];
  for (let node = pending.pop(); node; node = pending.pop()) {
    const { value } = node;
    if (typeof value === 'string' && !isStorableText(value)) return pathOf(node);
    if (typeof value !== 'object' || value === null) continue;
    for (const [key, inner] of Object.entries(value).toReversed()) pending.push({ value: inner, key, parent: node });
  }
  return null;
};
