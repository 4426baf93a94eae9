import { Button, Popover, TextInput } from '@mantine/core';
import { useState } from 'react';
import { Icon } from '../../../parts/icon.tsx';
import { useRead } from '../../../query.ts';
import type { CannedReplies, Me } from '../../../types.ts';
import type { ConversationFacts } from '../thread/thread.ts';
import { cannedPath } from './canned-path.ts';
import { ManageCanned } from './manage-canned.tsx';
import { fillIn } from './placeholders.ts';

type ChooserProps = { facts: ConversationFacts; onChoose: (content: string) => void; onManage: () => void };

const Chooser = ({ facts: { assistantId }, onChoose, onManage }: ChooserProps) => {
  const read = useRead<CannedReplies>(cannedPath(assistantId));
  const [typed, setTyped] = useState('');
  const [chosen, setChosen] = useState(0);
  const words = typed.toLowerCase();
  const found = (read.data?.cannedReplies ?? []).filter(({ title, content }) =>
    `${title} ${content}`.toLowerCase().includes(words),
  );
  const index = Math.min(chosen, Math.max(found.length - 1, 0));
  return (
    <>
      <TextInput
        data-autofocus
        size="xs"
        role="combobox"
        aria-label="Find a canned reply"
        aria-expanded
        aria-controls="canned"
        aria-activedescendant={found.length > 0 ? `canned-${index}` : undefined}
        placeholder="Find a canned reply"
        value={typed}
        onChange={(event) => {
          setTyped(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          const one = found[index];
          if (step !== undefined) setChosen((index + step + found.length) % Math.max(found.length, 1));
          else if (event.key === 'Enter' && one) onChoose(one.content);
          else return;
          event.preventDefault();
        }}
      />
      <ul id="canned" role="listbox" aria-label="Canned replies" className="places canned">
        {found.map(({ cannedReplyId, title, content }, nth) => (
          <li
            key={cannedReplyId}
            id={`canned-${nth}`}
            role="option"
            aria-selected={nth === index}
            onClick={() => onChoose(content)}
          >
            <span className="canned-title clip">{title}</span>
            <span className="dim clip">{content}</span>
          </li>
        ))}
        {found.length === 0 && <li className="dim">{read.isPending ? 'Loading…' : 'No canned replies'}</li>}
      </ul>
      <Button variant="subtle" size="compact-xs" onClick={onManage}>
        Edit canned replies
      </Button>
    </>
  );
};

type Props = {
  opened: boolean;
  onOpen: (opened: boolean) => void;
  onInsert: (words: string) => void;
  facts: ConversationFacts;
  me: Me;
};

/** Texts that operators use often. */
export const CannedMenu = ({ opened, onOpen, onInsert, facts, me }: Props) => {
  const [managing, setManaging] = useState(false);
  return (
    <>
      <Popover opened={opened} onChange={onOpen} position="top-start" width={320} trapFocus shadow="md">
        <Popover.Target>
          <Button
            variant="subtle"
            color="gray"
            size="compact-sm"
            leftSection={<Icon name="quote" size={15} />}
            onClick={() => onOpen(!opened)}
          >
            Canned reply
          </Button>
        </Popover.Target>
        <Popover.Dropdown aria-label="Canned replies">
          <Chooser
            facts={facts}
            onChoose={(content) => {
              onOpen(false);
              onInsert(fillIn(content, facts, me));
            }}
            onManage={() => {
              onOpen(false);
              setManaging(true);
            }}
          />
        </Popover.Dropdown>
      </Popover>
      <ManageCanned assistantId={facts.assistantId} opened={managing} onClose={() => setManaging(false)} />
    </>
  );
};
