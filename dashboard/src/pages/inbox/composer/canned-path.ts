import { at } from '../../../api.ts';

export const cannedPath = (assistantId: string) => at`/assistants/${assistantId}/canned-replies`;
