import { Group, Text } from '@mantine/core';
import { CopyIcon } from './copy.tsx';

/** Text with a copy button. JSON is shown with indentation, and copied unchanged. */
export const Code = ({ text, label, max = 360 }: { text: string; label: string; max?: number }) => (
  <div className="code">
    <span className="code-copy">
      <CopyIcon value={text} label={`Copy ${label}`} />
    </span>
    <pre tabIndex={0} aria-label={label} style={{ maxHeight: max }}>
      {pretty(text)}
    </pre>
  </div>
);

const pretty = (text: string): string => {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

/** One value on a separate line: an address, an id or a key. */
export const Value = ({ value, label }: { value: string; label: string }) => (
  <Group gap={4} wrap="nowrap" className="value">
    <Text component="code" size="sm" ff="monospace" className="value-text" aria-label={label}>
      {value}
    </Text>
    <CopyIcon value={value} label={`Copy ${label}`} />
  </Group>
);
