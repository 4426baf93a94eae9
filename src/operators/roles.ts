export const ROLES = ['owner', 'agent'] as const;
export type Role = (typeof ROLES)[number];

/** Whom an operation is for: whoever comes, whoever is signed in, or owners. Agents have inbox and playground (contract §7). */
export const AUDIENCES = ['anyone', 'operators', 'owners'] as const;
export type Audience = (typeof AUDIENCES)[number];

export const mayUse = (role: Role, audience: Audience): boolean => audience !== 'owners' || role === 'owner';
