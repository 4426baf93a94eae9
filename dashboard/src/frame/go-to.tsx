import { ActionIcon, Modal, TextInput, Tooltip } from '@mantine/core';
import { useHotkeys } from '@mantine/hooks';
import { type KeyboardEvent, useState } from 'react';
import { useLocation } from 'wouter';
import { Icon, type IconName } from '../parts/icon.tsx';
import type { Me } from '../types.ts';
import { navigationOf } from './navigation.tsx';

type Target = { name: string; of: string; to: string; icon: IconName; outside?: boolean };

/** All pages that the search offers: those of the current assistant and of the service, then the other assistants. */
const pagesOf = (me: Me, current: Me['assistants'][number] | null): Target[] => [
  ...navigationOf(me, current?.assistantId ?? null).flatMap(({ title, entries }) =>
    entries.map(({ label, ...entry }) => ({
      ...entry,
      name: label,
      of: title === 'Assistant' ? (current?.name ?? '') : (title ?? 'All assistants'),
    })),
  ),
  { name: 'My account', of: me.email, to: '/account', icon: 'user' },
  ...me.assistants
    .filter(({ assistantId }) => assistantId !== current?.assistantId)
    .map(({ assistantId, name }) => ({
      name,
      of: 'Assistant',
      to: `/assistants/${assistantId}/${me.role === 'owner' ? 'overview' : 'try'}`,
      icon: 'bot' as const,
    })),
];

const SHOWN = 12;

const find = (places: Target[], typed: string): Target[] => {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const holds = ({ name, of }: Target) => words.every((word) => `${name} ${of}`.toLowerCase().includes(word));
  return places.filter(holds).slice(0, SHOWN);
};

const Choice = ({ places, onGo }: { places: Target[]; onGo: (place: Target) => void }) => {
  const [typed, setTyped] = useState('');
  const [chosen, setChosen] = useState(0);
  const found = find(places, typed);
  const at = Math.min(chosen, Math.max(found.length - 1, 0));
  const onKey = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setChosen((at + step + found.length) % Math.max(found.length, 1));
    }
    const place = found[at];
    if (event.key === 'Enter' && place) onGo(place);
  };
  return (
    <>
      <TextInput
        placeholder="Go to a page or an assistant"
        leftSection={<Icon name="search" size={16} />}
        data-autofocus
        role="combobox"
        aria-label="Go to"
        aria-expanded
        aria-controls="places"
        aria-activedescendant={found.length > 0 ? `place-${at}` : undefined}
        value={typed}
        onChange={(event) => {
          setTyped(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={onKey}
      />
      <ul id="places" role="listbox" aria-label="Places" className="places">
        {found.map((place, index) => (
          <li
            key={place.to}
            id={`place-${index}`}
            role="option"
            aria-selected={index === at}
            onMouseEnter={() => setChosen(index)}
            onClick={() => onGo(place)}
          >
            <Icon name={place.icon} size={17} />
            <span className="grow clip">{place.name}</span>
            <span className="dim clip">{place.of}</span>
          </li>
        ))}
        {found.length === 0 && <li className="dim">No matches</li>}
      </ul>
    </>
  );
};

/** The search for pages, opened with Ctrl K or ⌘ K. */
export const GoTo = ({ me, current }: { me: Me; current: Me['assistants'][number] | null }) => {
  const [opened, setOpened] = useState(false);
  const [, go] = useLocation();
  useHotkeys([['mod+K', () => setOpened(true)]], []);
  const leave = ({ to, outside = false }: Target): void => {
    setOpened(false);
    if (outside) window.location.assign(to);
    else go(to);
  };
  return (
    <>
      <Tooltip label="Go to… (Ctrl K)">
        <ActionIcon variant="subtle" color="gray" aria-label="Go to" onClick={() => setOpened(true)}>
          <Icon name="search" />
        </ActionIcon>
      </Tooltip>
      <Modal.Root opened={opened} onClose={() => setOpened(false)} yOffset="12vh" centered={false}>
        <Modal.Overlay />
        <Modal.Content aria-label="Go to">
          <Modal.Body p="sm">
            <Choice places={pagesOf(me, current)} onGo={leave} />
          </Modal.Body>
        </Modal.Content>
      </Modal.Root>
    </>
  );
};
