import * as z from 'zod';
import type { Inbox } from '../inbox/inbox.ts';
import type { Notes } from '../inbox/notes.ts';
import { ApiError, notFound } from '../platform/errors.ts';
import { type Handled, handled, operation } from './operation.ts';
import { text, time, uuid } from './wire.ts';

const NOTE_MAX = 4_000;

const shared = { tag: 'Operators', audience: 'operators', resource: 'conversation', errors: ['not_found'] } as const;
const path = '/conversations/:id/notes';

export const NoteView = z
  .object({ noteId: uuid, operatorId: uuid, content: z.string(), createdAt: time })
  .meta({ id: 'Note', description: 'Seen by operators only: never by visitors, and never sent as an event.' });

export const noteOperations = {
  add: operation({
    ...shared,
    method: 'post',
    path,
    id: 'addNote',
    summary: 'Add a note for other operators',
    body: z.object({ content: text(NOTE_MAX) }),
    status: 201,
    answer: NoteView,
    audit: 'conversation.note',
  }),
  remove: operation({
    ...shared,
    method: 'delete',
    path: `${path}/:noteId`,
    id: 'deleteNote',
    summary: 'Delete your own note; owners may delete every note',
    audit: 'conversation.note_delete',
    errors: ['not_found', 'forbidden'],
  }),
};

type Dependencies = { inbox: Inbox; notes: Notes };

export const noteRoutes = ({ inbox, notes }: Dependencies): Handled[] => [
  handled(noteOperations.add, async ({ params: { id = '' }, body: { content }, operator, note: log }) => {
    const note = await notes.add(id, { operatorId: operator.operatorId, content });
    // If the conversation was erased meanwhile, the note must go too.
    await inbox.markNoted(id).catch(async (cause: unknown) => {
      await notes.remove(id, note.noteId);
      throw cause;
    });
    log({ target: id, details: { noteId: note.noteId } });
    return note;
  }),

  handled(noteOperations.remove, async ({ params: { id = '', noteId = '' }, operator, note: log }) => {
    const note = await notes.find(id, noteId);
    if (!note) throw notFound();
    if (note.operatorId !== operator.operatorId && operator.role !== 'owner')
      throw new ApiError('forbidden', { message: 'Only its author or an owner can delete a note.' });
    await notes.remove(id, noteId);
    await inbox.markNoted(id);
    log({ target: id, details: { noteId } });
  }),
];
