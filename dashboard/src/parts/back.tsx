import { Link } from 'wouter';
import { Icon } from './icon.tsx';

export const Back = ({ to, children }: { to: string; children: string }) => (
  <Link className="back" to={to}>
    <Icon name="left" size={16} />
    {children}
  </Link>
);
