import { Button, ColorInput, Group, Stack, TextInput } from '@mantine/core';
import { useState } from 'react';
import { at } from '../../../api.ts';
import { onSubmit } from '../../../parts/form.tsx';
import { useRead } from '../../../query.ts';
import type { ManagedTags } from '../../../types.ts';
import { useOpenConversation } from '../open-conversation.ts';
import { TagChip } from '../tag.tsx';
import type { ConversationFacts } from '../thread/thread.ts';
import { ActionPanel } from './action-panel.tsx';

type Tag = ConversationFacts['tags'][number];
const COLORS = ['#c42b2b', '#d9822b', '#1a7f4b', '#1e90ff', '#7048e8', '#5b616b'];

type FormProps = { assistantId: string; tags: readonly Tag[]; onAdd: (tag: Tag) => void };

const TagForm = ({ assistantId, tags, onAdd }: FormProps) => {
  const managed = useRead<ManagedTags>(at`/assistants/${assistantId}/tags`).data?.tags ?? [];
  const [typed, setTyped] = useState('');
  const [color, setColor] = useState('');
  const name = typed.trim();
  const has = (tag: string) => tags.some((one) => one.tag === tag);
  const offered = managed.filter(({ tag }) => !has(tag) && tag.toLowerCase().includes(name.toLowerCase()));
  const isManaged = managed.some(({ tag }) => tag === name);
  const add = (): void => {
    if (name === '') return;
    const known = managed.find(({ tag }) => tag === name);
    onAdd(known ?? { tag: name, color: /^#[0-9a-f]{6}$/.test(color) ? color : null });
  };
  return (
    <form onSubmit={onSubmit(add)}>
      <Stack gap="xs">
        <TextInput
          data-autofocus
          size="xs"
          label="Tag"
          maxLength={50}
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
        />
        {offered.length > 0 && (
          <ul className="offered" aria-label="Tags of this assistant">
            {offered.slice(0, 20).map((one) => (
              <li key={one.tag}>
                <button type="button" className="tag-offer" onClick={() => onAdd(one)}>
                  <TagChip {...one} />
                </button>
              </li>
            ))}
          </ul>
        )}
        {!isManaged && (
          <ColorInput
            size="xs"
            label="Colour"
            placeholder="None"
            swatches={COLORS}
            withPicker={false}
            withEyeDropper={false}
            popoverProps={{ withinPortal: false }}
            value={color}
            onChange={setColor}
          />
        )}
        <Group justify="flex-end">
          <Button type="submit" size="xs" disabled={name === ''}>
            Add tag
          </Button>
        </Group>
      </Stack>
    </form>
  );
};

type Props = { opened: boolean; onOpen: (opened: boolean) => void };

export const TagMenu = ({ opened, onOpen }: Props) => {
  const { facts, actions, act } = useOpenConversation();
  return (
    <ActionPanel label="Tag" shortcut="t" icon="tag" title="Add a tag" opened={opened} onOpen={onOpen}>
      <TagForm
        assistantId={facts.assistantId}
        tags={facts.tags}
        onAdd={(tag) => {
          onOpen(false);
          act(actions.addTag(tag));
        }}
      />
    </ActionPanel>
  );
};
