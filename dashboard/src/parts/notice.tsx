import type { ReactNode } from 'react';
import { Icon, type IconName } from './icon.tsx';

type Props = { tone: 'warn' | 'bad'; icon?: IconName; title?: string; children?: ReactNode; actions?: ReactNode };

/** A highlighted note on a page. */
export const Notice = ({ tone, icon = 'warning', title, children, actions }: Props) => (
  <div className="notice" data-tone={tone} role={tone === 'bad' ? 'alert' : 'note'}>
    <Icon name={icon} />
    <div className="grow">
      {title !== undefined && <div className="notice-title">{title}</div>}
      {children}
    </div>
    {actions}
  </div>
);
