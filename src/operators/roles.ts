export const ROLES = ['owner', 'agent'] as const;
export type Role = (typeof ROLES)[number];

/**
 * Who may call an operation: anyone, signed-in operators, or owners. Agents may use the inbox and the playground
 * (docs/contract.md, Operators and sessions).
 */
export const AUDIENCES = ['anyone', 'operators', 'owners'] as const;
export type Audience = (typeof AUDIENCES)[number];

/**
 * True if the operator may use the assistant. Owners may use every assistant, and agents those in `assistantIds`, where
 * null means every assistant (docs/contract.md, Operators and sessions).
 */
export const hasAssistant = (
  { role, assistantIds }: { role: Role; assistantIds: string[] | null },
  assistantId: string,
): boolean => role === 'owner' || assistantIds === null || assistantIds.includes(assistantId);

export const mayUse = (role: Role, audience: Audience): boolean => audience !== 'owners' || role === 'owner';
