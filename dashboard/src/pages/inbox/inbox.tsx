import { Title } from '@mantine/core';
import { useDocumentTitle } from '@mantine/hooks';
import { useCallback, useMemo, useRef, useState } from 'react';
import { useLocation, useSearch } from 'wouter';
import { useAddress } from '../../parts/address.ts';
import { Empty } from '../../parts/states.tsx';
import type { Me } from '../../types.ts';
import { readDraft, writeDraft } from './composer/drafts.ts';
import { type Commands, ConversationPane } from './conversation.tsx';
import type { Panel } from './conversation-head.tsx';
import { Help } from './help.tsx';
import { useShortcuts } from './keys.ts';
import { ListHead } from './list/head.tsx';
import { ListPane } from './list/pane.tsx';
import { useLiveLists } from './list/live.ts';
import { useRows } from './list/rows.ts';
import { filterOf, type Name, NAMES, viewOf } from './views.ts';

const NothingOpen = () => (
  <section className="pane pane-reading pane-nothing" aria-label="Conversation">
    <Empty icon="inbox" title="No conversation is open">
      Choose one from the list. Press ? for the keyboard shortcuts.
    </Empty>
  </section>
);

/** The conversations of all assistants of an operator: the list, the open conversation, and its details. */
const Inbox = ({ me, id }: { me: Me; id: string | null }) => {
  const [, go] = useLocation();
  const search = useSearch();
  const address = useAddress<Name>(NAMES, ['search']);
  const { of } = address;
  const filter = useMemo(() => filterOf((name) => new URLSearchParams(search).get(name) ?? ''), [search]);
  const list = useRows(filter);
  useLiveLists(id);
  const [panel, setPanel] = useState<Panel>(null);
  const [help, setHelp] = useState(false);
  const [details, setDetails] = useState(false);
  const [cursor, setCursor] = useState<{ id: string } | null>(null);
  const focused = useRef<string | null>(null);
  const searchField = useRef<HTMLInputElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const commands = useRef<Commands | null>(null);
  useDocumentTitle(`${id === null ? viewOf(of('view')).label : 'Conversation'} · Inbox · Parley`);

  const linkTo = useCallback((one: string) => `/inbox/${one}${search === '' ? '' : `?${search}`}`, [search]);
  const onFocus = useCallback((one: string) => {
    focused.current = one;
  }, []);
  const back = useCallback(() => {
    setDetails(false);
    go(`/inbox${search === '' ? '' : `?${search}`}`);
  }, [go, search]);

  /** Moves along the list. With a conversation open, the next one is opened; otherwise its row takes the focus. */
  const position = useRef(0);
  const move = (step: number): void => {
    const from = list.rows.findIndex(({ conversationId }) => conversationId === (id ?? focused.current));
    // A conversation that has left the list has left its place to the next one.
    const start = from >= 0 ? from + step : step > 0 ? position.current : position.current - 1;
    const at = Math.min(Math.max(id === null && focused.current === null ? 0 : start, 0), list.rows.length - 1);
    const row = list.rows[at];
    if (!row) return;
    position.current = at;
    if (id === null) setCursor({ id: row.conversationId });
    else go(linkTo(row.conversationId), { replace: true });
  };
  const write = (mode: 'reply' | 'note'): void => {
    if (id === null) return;
    writeDraft(id, { ...readDraft(id), mode });
    field.current?.focus();
  };

  useShortcuts({
    j: () => move(1),
    k: () => move(-1),
    r: () => write('reply'),
    n: () => write('note'),
    e: () => commands.current?.resolve(),
    a: () => commands.current?.assignToMe(),
    t: () => id !== null && setPanel('tag'),
    s: () => id !== null && setPanel('snooze'),
    '/': () => searchField.current?.focus(),
    '?': () => setHelp(true),
    Escape: () => {
      if (details) setDetails(false);
      else if (id !== null) back();
    },
  });

  return (
    <div className="inbox" data-open={id !== null} data-details={details}>
      <Title order={1} className="inbox-title">
        Inbox
      </Title>
      <div className="inbox-panes">
        <section className="pane pane-list" aria-label="List">
          <ListHead address={address} me={me} searchField={searchField} onHelp={() => setHelp(true)} />
          <ListPane
            list={list}
            address={address}
            me={me}
            openId={id}
            linkTo={linkTo}
            cursor={cursor}
            onFocus={onFocus}
          />
        </section>
        {id === null ? (
          <NothingOpen />
        ) : (
          <ConversationPane
            key={id}
            id={id}
            me={me}
            panel={panel}
            onPanel={setPanel}
            field={field}
            commands={commands}
            onBack={back}
            onDetails={setDetails}
          />
        )}
      </div>
      <Help opened={help} onClose={() => setHelp(false)} />
    </div>
  );
};

export default Inbox;
