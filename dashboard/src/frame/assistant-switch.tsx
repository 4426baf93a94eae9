import { Menu, UnstyledButton } from '@mantine/core';
import { Link, useLocation } from 'wouter';
import { Icon } from '../parts/icon.tsx';
import type { Me } from '../types.ts';

/**
 * The address of the same page for another assistant. From a detail page, it leads to the list, because the item
 * belongs to the current assistant.
 */
const samePageOf = (id: string, location: string, me: Me): string => {
  const page = /^\/assistants\/[^/]+\/(\w+)/.exec(location)?.[1];
  return `/assistants/${id}/${page ?? (me.role === 'owner' ? 'overview' : 'try')}`;
};

export const AssistantSwitch = ({ me, current }: { me: Me; current: Me['assistants'][number] | null }) => {
  const [location] = useLocation();
  if (!current) return null;
  return (
    <Menu position="bottom-start" width="target">
      <Menu.Target>
        <UnstyledButton className="switch" aria-label={`Assistant: ${current.name}. Choose another`}>
          <span className="switch-letter" aria-hidden="true" data-letter={[...current.name][0]?.toUpperCase()} />
          <span className="switch-name">{current.name}</span>
          <Icon name="chevron" size={16} />
        </UnstyledButton>
      </Menu.Target>
      <Menu.Dropdown mah={360} className="scroll">
        {me.assistants.map(({ assistantId, name }) => (
          <Menu.Item
            key={assistantId}
            component={Link}
            to={samePageOf(assistantId, location, me)}
            rightSection={assistantId === current.assistantId ? <Icon name="check" size={15} /> : null}
          >
            {name}
          </Menu.Item>
        ))}
        {me.role === 'owner' && (
          <>
            <Menu.Divider />
            <Menu.Item component={Link} to="/assistants?new" leftSection={<Icon name="plus" size={15} />}>
              New assistant
            </Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  );
};
