import type { Command } from 'commander';
import type { Session } from './session.ts';

type AddCommands = (root: Command, session: Session) => Promise<void>;

const COMMANDS: Record<string, AddCommands> = {
  assistant: async (root, { run }) => (await import('./assistant.ts')).addAssistantCommands(root, run),
  apply: async (root, { run }) => (await import('./apply.ts')).addApplyCommand(root, run),
  describe: async (root, { run }) => (await import('./apply.ts')).addDescribeCommand(root, run),
  export: async (root, { run }) => (await import('./transfer.ts')).addExportCommand(root, run),
  import: async (root, { run }) => (await import('./transfer.ts')).addImportCommand(root, run),
  knowledge: async (root, { run }) => (await import('./knowledge.ts')).addKnowledgeCommands(root, run),
  draft: async (root, { run }) => (await import('./draft.ts')).addDraftCommands(root, run),
  source: async (root, { run }) => (await import('./source.ts')).addSourceCommands(root, run),
  questions: async (root, { run }) => (await import('./questions.ts')).addQuestionCommands(root, run),
  evaluate: async (root, { run }) => (await import('./questions.ts')).addEvaluateCommand(root, run),
  key: async (root, { run }) => (await import('./key.ts')).addKeyCommands(root, run),
  channel: async (root, { run }) => (await import('./channel.ts')).addChannelCommands(root, run),
  web: async (root, { run }) => (await import('./web.ts')).addWebCommands(root, run),
  endpoint: async (root, { run }) => (await import('./endpoint.ts')).addEndpointCommands(root, run),
  delivery: async (root, { run }) => (await import('./delivery.ts')).addDeliveryCommands(root, run),
  conversation: async (root, { run }) => {
    const conversation = (await import('./conversation.ts')).addConversationCommands(root, run);
    (await import('./transition.ts')).addTransitionCommands(conversation, run);
    (await import('./handling.ts')).addHandlingCommands(conversation, run);
  },
  alert: async (root, { run }) => (await import('./alert.ts')).addAlertCommands(root, run),
  turn: async (root, { run }) => (await import('./turn.ts')).addTurnCommands(root, run),
  operator: async (root, session) => (await import('./operator.ts')).addOperatorCommands(root, session),
  token: async (root, { runLocal }) => (await import('./token.ts')).addTokenCommands(root, runLocal),
  'rotate-encryption-key': async (root, { runBare }) =>
    (await import('./rotate-encryption-key.ts')).addRotateEncryptionKeyCommand(root, runBare),
  doctor: async (root, { runBare }) => (await import('./doctor.ts')).addDoctorCommand(root, runBare),
};

/**
 * Adds the commands whose first word was called, or all commands if the first word is none of theirs. The files of the
 * other commands are not loaded, because loading all of them takes most of the time of a short command.
 */
export const addCommands = async (root: Command, session: Session, words: string[]): Promise<void> => {
  const first = words.find((word) => !word.startsWith('-')) ?? '';
  const called = Object.hasOwn(COMMANDS, first) ? [COMMANDS[first]] : Object.values(COMMANDS);
  for (const add of called) await add?.(root, session);
};
