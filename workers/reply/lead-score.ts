export const scoreLead = (input: {
  previous: number;
  explanation: string[];
  message: string;
  turnNumber: number;
}): { score: number; because: string[] } => ({ score: input.previous, because: input.explanation });
