import { Button, NativeSelect, Stack, TextInput } from '@mantine/core';
import type { Address } from '../../../parts/address.ts';
import type { Me } from '../../../types.ts';
import { useAgents } from '../agents.ts';
import { type Name, viewOf } from '../views.ts';
import { CHANNEL_WORDS, STATUS_WORDS } from '../words.ts';

type Choice = { value: string; label: string };
const ANY: Choice = { value: '', label: 'Any' };
const choicesOf = (words: Record<string, string>): Choice[] =>
  Object.entries(words).map(([value, label]) => ({ value, label }));
const CHANNELS = choicesOf(CHANNEL_WORDS).filter(({ value }) => value !== 'playground');

/** The filters of the list. Those that the view decides are not offered. */
export const FilterForm = ({ address, me }: { address: Address<Name>; me: Me }) => {
  const { filter } = viewOf(address.of('view'));
  const assistantId =
    address.of('assistant') || (me.assistants.length === 1 ? me.assistants[0]?.assistantId : '') || '';
  const agents = useAgents(assistantId, assistantId !== '');
  const people = agents
    .filter(({ operatorId }) => operatorId !== me.operatorId)
    .map(({ operatorId, email }) => ({ value: operatorId, label: email }));
  const assistants = me.assistants.map((one) => ({ value: one.assistantId, label: one.name }));
  return (
    <Stack gap="xs">
      {assistants.length > 1 && (
        <NativeSelect label="Assistant" data={[ANY, ...assistants]} {...address.bound('assistant')} />
      )}
      {filter.status === undefined && (
        <NativeSelect label="Status" data={[ANY, ...choicesOf(STATUS_WORDS)]} {...address.bound('status')} />
      )}
      {filter.assignee === undefined && (
        <NativeSelect
          label="Assignee"
          data={[ANY, { value: 'me', label: 'Me' }, { value: 'none', label: 'Nobody' }, ...people]}
          {...address.bound('assignee')}
        />
      )}
      <NativeSelect label="Channel" data={[ANY, ...CHANNELS]} {...address.bound('channel')} />
      <TextInput label="Tag" maxLength={50} {...address.bound('tag')} />
      <TextInput label="Language" placeholder="de" maxLength={35} {...address.bound('language')} />
      <Button variant="default" size="xs" disabled={!address.any} onClick={address.clear}>
        Clear all
      </Button>
    </Stack>
  );
};
