import { Button, Group } from '@mantine/core';
import { useEffect, useState } from 'react';
import { at, call } from '../../api.ts';
import { useConfirm } from '../../parts/confirm.tsx';
import { Section } from '../../parts/page.tsx';
import { Shown } from '../../parts/states.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Decided, Proposal, Proposals } from '../../types.ts';
import { counted } from './source-state.tsx';

const FEW = 3;

/** Null: all. */
type Choice = string[] | null;

const useDecisions = (id: string) => {
  const path = at`/assistants/${id}/proposed-entries`;
  const decide = (what: 'accept' | 'dismiss') => (choice: Choice) =>
    call<Decided>('POST', `${path}/${what}`, { body: { proposalIds: choice } });
  const invalidates = ['/assistants/'];
  const accept = useChange({
    run: decide('accept'),
    invalidates,
    done: ({ entries }) => `${counted(entries, 'entry', 'entries')} of the knowledge added or changed.`,
  });
  const dismiss = useChange({
    run: decide('dismiss'),
    invalidates,
    done: ({ entries }) => `${counted(entries, 'proposal')} decided.`,
  });
  return { accept, dismiss };
};

const isFor = (choice: Choice | undefined, { proposalId }: Proposal): boolean => choice?.includes(proposalId) === true;

/** An entry that was edited, or is in drafts, keeps its answer or gets that of its page. */
const words = ({ entryId }: Proposal) =>
  entryId === null ? { accept: 'Accept', dismiss: 'Dismiss' } : { accept: 'Use this answer', dismiss: 'Keep mine' };

/** Questions and answers found in sources. Each becomes an entry of the knowledge with one click. */
export const ProposalList = ({ id, count, busy }: { id: string; count: number; busy: boolean }) => {
  const read = useRead<Proposals>(at`/assistants/${id}/proposed-entries`, { keep: true });
  const { refetch } = read;
  // Those of a run are shown when it has ended, so that no row moves under somebody's hand.
  useEffect(() => {
    if (!busy) void refetch();
  }, [busy, count, refetch]);
  const { accept, dismiss } = useDecisions(id);
  const { dialog, ask } = useConfirm();
  const [all, setAll] = useState(false);
  const askAll = () =>
    ask({
      title: 'Accept all new proposals?',
      body: 'They become entries of the knowledge. You can change or remove them there. Entries that you have edited stay.',
      action: 'Accept all',
      onConfirm: () => accept.mutate(null),
    });
  return (
    <Section
      title="Proposed entries"
      description="Questions and answers found in the sources. As knowledge they answer word for word, and follow their page until you edit them."
      flush
      actions={
        <Button size="xs" variant="default" loading={accept.isPending} onClick={askAll}>
          Accept all new
        </Button>
      }
    >
      <Shown read={read} rows={2}>
        {({ proposals, nextCursor }) => (
          <>
            <ul className="rows" aria-label="Proposed entries">
              {(all ? proposals : proposals.slice(0, FEW)).map((one) => (
                <li key={one.proposalId} className="miss">
                  <div className="miss-head">
                    <div className="grow">
                      <div className="row-title">{one.question}</div>
                      {one.entryId !== null && (
                        <div className="row-sub">
                          The page says something else now than this entry, which keeps its answer until you decide.
                        </div>
                      )}
                      {one.url !== null && (
                        <a className="dim break" href={one.url} target="_blank" rel="noreferrer">
                          {one.url}
                        </a>
                      )}
                    </div>
                    <Group gap="xs">
                      <Button
                        size="xs"
                        loading={accept.isPending && isFor(accept.variables, one)}
                        onClick={() => accept.mutate([one.proposalId])}
                        aria-label={`${words(one).accept} “${one.question}”`}
                      >
                        {words(one).accept}
                      </Button>
                      <Button
                        size="xs"
                        variant="default"
                        loading={dismiss.isPending && isFor(dismiss.variables, one)}
                        onClick={() => dismiss.mutate([one.proposalId])}
                        aria-label={`${words(one).dismiss} “${one.question}”`}
                      >
                        {words(one).dismiss}
                      </Button>
                    </Group>
                  </div>
                  <blockquote className="miss-answer">{one.answer}</blockquote>
                </li>
              ))}
            </ul>
            {!all && proposals.length > FEW && (
              <div className="more">
                <Button variant="subtle" color="gray" onClick={() => setAll(true)}>
                  Show {nextCursor === null ? 'all' : 'the first'} {proposals.length}
                </Button>
              </div>
            )}
          </>
        )}
      </Shown>
      {dialog}
    </Section>
  );
};
