type Detail = { field: string; code: string; message: string };

/** An error answer of the API with its message, or a failure to get any answer. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly details: Detail[];
  readonly requestId: string | null;

  constructor(status: number, body: unknown) {
    const error = errorOf(body);
    super(error.message ?? (status === 0 ? 'The service cannot be reached.' : `The service answered with ${status}.`));
    this.status = status;
    this.code = error.code ?? 'unreachable';
    this.requestId = error.requestId ?? null;
    this.details = error.details ?? [];
    if (this.details.length === 0 && error.field !== undefined) {
      this.details = [{ field: error.field, code: this.code, message: this.message }];
    }
  }
}

type ErrorBody = { code?: string; message?: string; field?: string; requestId?: string; details?: Detail[] };

const errorOf = (body: unknown): ErrorBody => {
  if (typeof body !== 'object' || body === null || !('error' in body)) return {};
  return typeof body.error === 'object' && body.error !== null ? body.error : {};
};

export const isProblem = (value: unknown, status?: number): value is Problem =>
  value instanceof Problem && (status === undefined || value.status === status);

const sentence = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);

/** The errors of one field as one sentence. Includes errors of the field's parts (`languages.0`). */
export const fieldProblem = (problem: unknown, field: string): string | undefined => {
  if (!isProblem(problem)) return undefined;
  const own = problem.details.find((one) => one.field === field || one.field.startsWith(`${field}.`));
  return own && sentence(own.message);
};

/** The errors that do not belong to a field of the form. */
export const remainingProblem = (problem: unknown, fields: readonly string[]): string | undefined => {
  if (!(problem instanceof Error)) return undefined;
  if (!isProblem(problem) || problem.details.length === 0 || problem.status === 409) return problem.message;
  const rest = problem.details.filter(({ field }) => !fields.includes(field.split('.')[0] ?? ''));
  return rest.length > 0 ? rest.map(({ field, message }) => `${field} ${message}`).join('; ') : undefined;
};
