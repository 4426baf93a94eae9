import { ActionIcon, Button, TextInput } from '@mantine/core';
import { Icon } from '../../../parts/icon.tsx';
import { moreTimes, type Times } from './hours-fields.ts';

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONDAY_FIRST = [1, 2, 3, 4, 5, 6, 0];
const TIMES_MAX = 5;

type DayProps = { name: string; times: Times[]; onChange: (times: Times[]) => void };

const Day = ({ name, times, onChange }: DayProps) => {
  const change = (at: number, part: Partial<Times>): void =>
    onChange(times.map((one, index) => (index === at ? { ...one, ...part } : one)));
  return (
    <div className="week-day" role="group" aria-label={name}>
      <span>{name}</span>
      <div className="week-day-times">
        {times.length === 0 && <span className="dim">Closed</span>}
        {times.map(({ from, to }, at) => (
          <span key={at} className="week-times">
            <TextInput
              type="time"
              size="xs"
              aria-label={`${name} from`}
              value={from}
              onChange={(event) => change(at, { from: event.currentTarget.value })}
            />
            <span aria-hidden>–</span>
            <TextInput
              type="time"
              size="xs"
              aria-label={`${name} until`}
              value={to}
              onChange={(event) => change(at, { to: event.currentTarget.value })}
            />
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={`Remove ${from} to ${to} on ${name}`}
              onClick={() => onChange(times.filter((_, index) => index !== at))}
            >
              <Icon name="cross" size={14} />
            </ActionIcon>
          </span>
        ))}
        {times.length < TIMES_MAX && (
          <Button
            variant="subtle"
            size="compact-xs"
            aria-label={`Add times on ${name}`}
            onClick={() => onChange([...times, moreTimes(times)])}
          >
            Add times
          </Button>
        )}
      </div>
    </div>
  );
};

/** The times of a week, day by day. */
export const WeekEditor = ({ week, onChange }: { week: Times[][]; onChange: (week: Times[][]) => void }) => (
  <div className="week">
    {MONDAY_FIRST.map((day) => (
      <Day
        key={day}
        name={DAYS[day] ?? ''}
        times={week[day] ?? []}
        onChange={(times) => onChange(week.map((one, at) => (at === day ? times : one)))}
      />
    ))}
  </div>
);
