import { ActionIcon, Button, Group, Stack, TextInput } from '@mantine/core';
import { useState } from 'react';
import { at, call } from '../../../api.ts';
import { FormProblem, onSubmit } from '../../../parts/form.tsx';
import { Icon } from '../../../parts/icon.tsx';
import { Shown } from '../../../parts/states.tsx';
import { useChange, useRead } from '../../../query.ts';
import type { ManagedTags } from '../../../types.ts';

type Tag = ManagedTags['tags'][number];

const NO_COLOR = '#868e96';
const TAGS_MAX = 100;

type RowProps = { tag: Tag; nth: number; onChange: (tag: Tag) => void; onRemove: () => void };

const Row = ({ tag: { tag, color }, nth, onChange, onRemove }: RowProps) => (
  <Group gap="xs" wrap="nowrap">
    <TextInput
      type="color"
      w={48}
      aria-label={`Colour of tag ${nth}`}
      classNames={{ input: 'color-input' }}
      value={color ?? NO_COLOR}
      onChange={(event) => onChange({ tag, color: event.currentTarget.value })}
    />
    <TextInput
      className="grow"
      aria-label={`Tag ${nth}`}
      maxLength={50}
      value={tag}
      onChange={(event) => onChange({ tag: event.currentTarget.value, color })}
    />
    <ActionIcon variant="subtle" color="gray" aria-label={`Remove tag ${nth}`} onClick={onRemove}>
      <Icon name="trash" size={16} />
    </ActionIcon>
  </Group>
);

const Form = ({ path, stored }: { path: string; stored: Tag[] }) => {
  const [tags, setTags] = useState(stored);
  const save = useChange({
    run: () => call<ManagedTags>('PUT', path, { body: { tags } }),
    invalidates: [path],
    done: 'The tags are saved.',
    quiet: true,
    after: (saved) => setTags(saved.tags),
  });
  const changed = JSON.stringify(tags) !== JSON.stringify(stored);
  return (
    <form onSubmit={onSubmit(() => save.mutate())} noValidate>
      <Stack gap="sm" maw={480}>
        <FormProblem problem={save.error} fields={[]} />
        {tags.length === 0 && (
          <p className="dim">
            Operators can type any tag. Those listed here are offered to them, each with its colour.
          </p>
        )}
        {tags.map((tag, index) => (
          <Row
            key={index}
            tag={tag}
            nth={index + 1}
            onChange={(changedTag) => setTags(tags.map((one, other) => (other === index ? changedTag : one)))}
            onRemove={() => setTags(tags.filter((_, other) => other !== index))}
          />
        ))}
        <Group gap="xs">
          <Button
            variant="default"
            leftSection={<Icon name="plus" size={16} />}
            disabled={tags.length >= TAGS_MAX}
            onClick={() => setTags([...tags, { tag: '', color: null }])}
          >
            Add tag
          </Button>
          <Button
            type="submit"
            loading={save.isPending}
            disabled={!changed || tags.some(({ tag }) => tag.trim() === '')}
          >
            Save tags
          </Button>
        </Group>
      </Stack>
    </form>
  );
};

/** The tags that operators choose from. */
export const TagsForm = ({ id }: { id: string }) => {
  const path = at`/assistants/${id}/tags`;
  const read = useRead<ManagedTags>(path);
  return <Shown read={read}>{({ tags }) => <Form key={JSON.stringify(tags)} path={path} stored={tags} />}</Shown>;
};
