export const ROLES = ['owner', 'agent'] as const;
export type Role = (typeof ROLES)[number];

/**
 * Whom an operation is for: whoever comes, whoever is signed in, or owners. Agents have inbox and playground
 * (docs/contract.md, Operators and sessions).
 */
export const AUDIENCES = ['anyone', 'operators', 'owners'] as const;
export type Audience = (typeof AUDIENCES)[number];

/**
 * Owners have every assistant, an agent those given to them; null = every one (docs/contract.md, Operators and sessions).
 */
export const hasAssistant = (
  { role, assistantIds }: { role: Role; assistantIds: string[] | null },
  assistantId: string,
): boolean => role === 'owner' || assistantIds === null || assistantIds.includes(assistantId);

export const mayUse = (role: Role, audience: Audience): boolean => audience !== 'owners' || role === 'owner';
