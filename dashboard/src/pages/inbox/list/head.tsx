import { Button, Indicator, Menu, Popover, TextInput, Tooltip } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { type RefObject, useEffect, useState } from 'react';
import type { Address } from '../../../parts/address.ts';
import { Icon } from '../../../parts/icon.tsx';
import { IconButton } from '../../../parts/icon-button.tsx';
import type { Me } from '../../../types.ts';
import { FILTERS, type Name, VIEWS, viewOf } from '../views.ts';
import { FilterForm } from './filter-form.tsx';

const TYPED_MS = 250;

const Views = ({ address }: { address: Address<Name> }) => {
  const view = viewOf(address.of('view'));
  return (
    <Menu position="bottom-start" width={220}>
      <Menu.Target>
        <Button
          variant="subtle"
          color="gray"
          size="compact-md"
          className="view-switch"
          rightSection={<Icon name="chevron" size={16} />}
          aria-label={`View: ${view.label}. Choose another`}
        >
          {view.label}
        </Button>
      </Menu.Target>
      <Menu.Dropdown aria-label="Views">
        {VIEWS.map(({ id, label }) => (
          <Menu.Item
            key={id}
            onClick={() => address.set('view', id === VIEWS[0]?.id ? null : id)}
            rightSection={id === view.id && <Icon name="check" size={16} />}
          >
            {label}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
};

const Filters = ({ address, me }: { address: Address<Name>; me: Me }) => {
  const [opened, setOpened] = useState(false);
  const count = FILTERS.filter((name) => address.of(name) !== '').length;
  return (
    <Popover opened={opened} onChange={setOpened} position="bottom-end" width={280} trapFocus shadow="md">
      <Popover.Target>
        <Tooltip label="Filters">
          <Indicator disabled={count === 0} size={8} offset={5}>
            <IconButton
              label={count === 0 ? 'Filters' : `Filters: ${count} in use`}
              icon="sliders"
              onClick={() => setOpened(!opened)}
            />
          </Indicator>
        </Tooltip>
      </Popover.Target>
      <Popover.Dropdown aria-label="Filters">
        <FilterForm address={address} me={me} />
      </Popover.Dropdown>
    </Popover>
  );
};

type Props = {
  address: Address<Name>;
  me: Me;
  searchField: RefObject<HTMLInputElement | null>;
  onHelp: () => void;
};

/** The view, the filters and the search of the list. */
export const ListHead = ({ address, me, searchField, onHelp }: Props) => {
  const search = address.of('search');
  const [typed, setTyped] = useState(search);
  const look = useDebouncedCallback((text: string) => address.set('search', text), TYPED_MS);
  useEffect(() => setTyped(search), [search]);
  return (
    <div className="list-head">
      <div className="list-head-line">
        <Views address={address} />
        <span className="grow" />
        <Filters address={address} me={me} />
        <Tooltip label="Keyboard shortcuts (?)">
          <IconButton label="Keyboard shortcuts" icon="keyboard" onClick={onHelp} />
        </Tooltip>
      </div>
      <TextInput
        ref={searchField}
        type="search"
        size="sm"
        aria-label="Search conversations"
        placeholder="Search messages"
        leftSection={<Icon name="search" size={16} />}
        value={typed}
        onChange={(event) => {
          setTyped(event.currentTarget.value);
          look(event.currentTarget.value.trim());
        }}
        onKeyDown={(event) => {
          if (event.key === 'Escape') event.currentTarget.blur();
        }}
      />
    </div>
  );
};
