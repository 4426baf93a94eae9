import { Button, SegmentedControl, Textarea } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { type KeyboardEvent, memo, type RefObject, useState, useSyncExternalStore } from 'react';
import { onSubmit } from '../../../parts/form.tsx';
import { Notice } from '../../../parts/notice.tsx';
import { useOpenConversation } from '../open-conversation.ts';
import { CannedMenu } from './canned.tsx';
import { readDraft, subscribeToDrafts, writeDraft } from './drafts.ts';
import { Others } from './others.tsx';
import { useSend } from './send.ts';
import { useWriting } from './writing.ts';

const MAX = { reply: 8000, note: 4000 };

type Props = {
  field: RefObject<HTMLTextAreaElement | null>;
  /** The number of the newest message of another operator; 0 if there is none. */
  answeredSeq: number;
};

/** Where an operator writes a reply to the visitor, or a note for colleagues. */
export const Composer = memo(({ field, answeredSeq }: Props) => {
  const { facts, me } = useOpenConversation();
  const { conversationId, seq } = facts;
  const client = useQueryClient();
  const draft = useSyncExternalStore(subscribeToDrafts, () => readDraft(conversationId));
  const { mode, text, problem } = draft;
  const send = useSend(client, conversationId);
  const { isWriting, note, stop } = useWriting();
  const [choosing, setChoosing] = useState(false);
  const overtaken = mode === 'reply' && text !== '' && answeredSeq > draft.sinceSeq;

  const write = (next: string): void =>
    writeDraft(conversationId, { ...draft, text: next, sinceSeq: text === '' ? seq : draft.sinceSeq });
  const submit = (): void => {
    stop();
    const { text: latest } = readDraft(conversationId);
    if (latest.trim() === '' || latest.length > MAX[mode]) return;
    send.mutate({ mode, text: latest, sinceSeq: draft.sinceSeq, at: new Date().toISOString() });
    writeDraft(conversationId, { mode, text: '', sinceSeq: 0 });
  };
  const onKey = (event: KeyboardEvent<HTMLTextAreaElement>): void => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      submit();
    } else if (event.key === '/' && text === '' && mode === 'reply') {
      event.preventDefault();
      setChoosing(true);
    } else if (event.key === 'Escape') event.currentTarget.blur();
  };
  const insert = (words: string): void => {
    write(text === '' ? words : `${text}${text.endsWith('\n') ? '' : '\n'}${words}`);
    field.current?.focus();
  };

  return (
    <form className="reply-box" data-mode={mode} onSubmit={onSubmit(submit)} aria-label="Write">
      {problem !== undefined && <Notice tone="bad">{problem}</Notice>}
      <Others conversationId={conversationId} isWriting={isWriting} />
      {overtaken && <Notice tone="warn">Another operator has answered since you began to write.</Notice>}
      <div className="reply-head">
        <SegmentedControl
          size="xs"
          aria-label="What you write"
          value={mode}
          onChange={(value) => writeDraft(conversationId, { ...draft, mode: value === 'note' ? 'note' : 'reply' })}
          data={[
            { value: 'reply', label: 'Reply' },
            { value: 'note', label: 'Internal note' },
          ]}
        />
        <span className="dim">{mode === 'note' ? 'Only operators see this.' : 'The visitor sees this.'}</span>
      </div>
      <Textarea
        ref={field}
        aria-label={mode === 'note' ? 'Internal note' : 'Reply'}
        placeholder={mode === 'note' ? 'Write a note for your colleagues' : 'Write a reply. Type / for a canned reply.'}
        variant="unstyled"
        autosize
        minRows={2}
        maxRows={10}
        value={text}
        error={text.length > MAX[mode] && `At most ${MAX[mode]} characters.`}
        onChange={(event) => {
          note();
          write(event.currentTarget.value);
        }}
        onKeyDown={onKey}
      />
      <div className="reply-foot">
        {mode === 'reply' && (
          <CannedMenu opened={choosing} onOpen={setChoosing} onInsert={insert} facts={facts} me={me} />
        )}
        <span className="grow" />
        <span className="dim reply-hint">Ctrl Enter</span>
        <Button type="submit" size="xs" disabled={text.trim() === ''}>
          {mode === 'note' ? 'Add note' : overtaken ? 'Send anyway' : 'Send'}
        </Button>
      </div>
    </form>
  );
});
