import { Menu } from '@mantine/core';
import { Icon } from '../../parts/icon.tsx';
import { RowMenu } from '../../parts/row-menu.tsx';
import { Status } from '../../parts/status.tsx';
import { When } from '../../parts/when.tsx';
import type { Me, OperatorToken } from '../../types.ts';
import { assistantsInWords } from './operator-row.tsx';

const Use = ({ one }: { one: OperatorToken }) => {
  if (one.revokedAt !== null) {
    return (
      <Status tone="calm">
        Revoked <When at={one.revokedAt} />
      </Status>
    );
  }
  if (one.lastUsedAt === null) return 'Never used';
  return (
    <>
      Used <When at={one.lastUsedAt} />
    </>
  );
};

type Props = { one: OperatorToken; me: Me; onRevoke: () => void };

export const TokenRow = ({ one, me, onRevoke }: Props) => (
  <li className="row row-stack">
    <div className="row-main">
      <div className="row-title">{one.name}</div>
      <div className="row-sub">
        <span className="mono">op_…{one.lastFour}</span> · {one.scope === 'read' ? 'Reads' : 'Reads and changes'} ·{' '}
        {assistantsInWords(one.assistantIds, me.assistants)}
      </div>
    </div>
    <div className="key-use dim">
      <Use one={one} />
    </div>
    <div className="key-made dim">
      Made <When at={one.createdAt} />
    </div>
    {one.revokedAt === null && (
      <RowMenu label={`Actions for ${one.name}`}>
        <Menu.Item className="danger" leftSection={<Icon name="trash" size={16} />} onClick={onRevoke}>
          Revoke…
        </Menu.Item>
      </RowMenu>
    )}
  </li>
);
