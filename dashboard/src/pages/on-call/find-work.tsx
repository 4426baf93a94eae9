import { Button, TextInput } from '@mantine/core';
import { type FormEvent, useState } from 'react';
import { Link } from 'wouter';
import { withQuery } from '../../api.ts';
import { useAddress } from '../../parts/address.ts';
import { Facts, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { useRead } from '../../query.ts';
import type { FoundWork, Work } from '../../types.ts';

const KINDS: Record<Work['kind'], string> = {
  conversation: 'Conversation',
  turn: 'Turn',
  delivery: 'Delivery',
  source: 'Source',
};

const ownPageOf = ({ kind, id, assistantId }: Work): { label: string; to: string } | null => {
  if (kind === 'delivery')
    return { label: 'Request and response', to: `/assistants/${assistantId}/deliveries/${encodeURIComponent(id)}` };
  return kind === 'source' ? { label: 'Source', to: `/assistants/${assistantId}/sources/${id}` } : null;
};

const Links = ({ work }: { work: Work }) => {
  const { kind, assistantId, conversationId, job } = work;
  const own = ownPageOf(work);
  return (
    <span className="on-call-links">
      {own && (
        <Link className="link" to={own.to}>
          {own.label}
        </Link>
      )}
      {conversationId !== null && (
        <Link className="link" to={`/inbox/${conversationId}?view=all`}>
          Conversation
        </Link>
      )}
      {conversationId !== null && kind !== 'delivery' && (
        <Link className="link" to={withQuery(`/assistants/${assistantId}/deliveries`, { id: conversationId })}>
          Its deliveries
        </Link>
      )}
      {job && (
        <a className="link" href={job.page}>
          Job {job.jobId} ({job.state})
        </a>
      )}
    </span>
  );
};

const holderOf = ({ holder }: Work) =>
  holder && (
    <span className="break">
      {holder.host === null ? holder.worker : `${holder.host}, process ${holder.pid}`}
      {holder.heardAt !== null && (
        <>
          , heard <When at={holder.heardAt} />
        </>
      )}
      {holder.until !== null && (
        <>
          , lease until <When exact at={holder.until} />
        </>
      )}
    </span>
  );

const WorkRow = ({ work }: { work: Work }) => {
  const { kind, id, state, since, why, next } = work;
  const holder = holderOf(work);
  return (
    <li className="row on-call-work">
      <div className="row-main">
        <h3 className="row-title">
          {KINDS[kind]}: {state}
        </h3>
        <div className="row-sub mono break">{id}</div>
        <Facts
          facts={{
            ...(since !== null && { Since: <When at={since} /> }),
            Why: why,
            Next: next,
            ...(holder && { Worker: holder }),
            Pages: <Links work={work} />,
          }}
        />
      </div>
    </li>
  );
};

/** Where something is, by any of its ids. The id is in the page's address, so other pages link to it. */
export const FindWork = () => {
  const { of, set } = useAddress(['find']);
  const wanted = of('find').trim();
  const [typed, setTyped] = useState(wanted);
  const read = useRead<FoundWork>(withQuery('/work', { search: wanted }), { enabled: wanted !== '', keep: true });
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    set('find', typed.trim());
  };
  return (
    <Section title="Find work" description="By the id of a conversation, turn, session, event, delivery or source.">
      <form className="on-call-find" role="search" aria-label="Find work" onSubmit={submit}>
        <TextInput
          aria-label="Id"
          placeholder="Id"
          maxLength={256}
          classNames={{ input: 'mono' }}
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
        />
        <Button type="submit">Find</Button>
      </form>
      <div aria-live="polite">
        {wanted !== '' && (
          <Shown read={read} rows={2}>
            {({ work }) =>
              work.length === 0 ? (
                <Empty icon="search" title="Nothing has this id">
                  It may have been erased, or its time is over.
                </Empty>
              ) : (
                <ul className="rows" aria-label="Found work">
                  {work.map((one) => (
                    <WorkRow key={`${one.kind} ${one.id}`} work={one} />
                  ))}
                </ul>
              )
            }
          </Shown>
        )}
      </div>
    </Section>
  );
};
