import { NativeSelect, Radio, Stack, Textarea, TextInput } from '@mantine/core';
import { at, call, withQuery } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { linesOf, withScheme } from '../../parts/typed.ts';
import { tellProblem, useChange } from '../../query.ts';
import type { Source } from '../../types.ts';

const SCHEDULES = [
  { value: 'off', label: 'Only when I ask' },
  { value: 'daily', label: 'Every day' },
  { value: 'weekly', label: 'Every week' },
];
export const scheduleWords = ({ schedule }: Source): string =>
  SCHEDULES.find(({ value }) => value === schedule)?.label ?? schedule;

export const FILE_TYPES = '.md,.markdown,.html,.htm,.txt,.pdf,.docx';
const FILE_MAX_BYTES = 20_000_000;

type Fields = { kind: string; url: string; name: string; schedule: string; include: string; exclude: string };
const NEW: Fields = { kind: 'site', url: '', name: '', schedule: 'off', include: '', exclude: '' };

const PathFields = ({ form }: { form: ReturnType<typeof useFields<Fields>> }) => (
  <>
    <Textarea
      label="Only these paths"
      description="One per line. * stands for anything up to the next slash, ** for anything. Empty: everything below the address."
      placeholder="/help/**"
      classNames={{ input: 'mono' }}
      autosize
      minRows={2}
      maxRows={6}
      {...form.text('include')}
    />
    <Textarea
      label="Not these paths"
      placeholder="/help/archive/**"
      classNames={{ input: 'mono' }}
      autosize
      minRows={2}
      maxRows={6}
      {...form.text('exclude')}
    />
  </>
);

const ScheduleField = ({ form }: { form: ReturnType<typeof useFields<Fields>> }) => (
  <NativeSelect label="Read it again" data={SCHEDULES} {...form.text('schedule')} />
);

/** Adds a website or a page. */
export const AddUrl = ({ path, onClose }: { path: string; onClose: () => void }) => {
  const add = useChange({
    run: ({ kind, url, schedule, include, exclude }: Fields) => {
      const paths = kind === 'site' ? { include: linesOf(include), exclude: linesOf(exclude) } : {};
      return call<Source>('POST', path, { body: { kind, url: withScheme(url), schedule, ...paths } });
    },
    invalidates: ['/assistants/'],
    done: 'The source is added. It is being read.',
    quiet: true,
    after: onClose,
  });
  const form = useFields(NEW, add.error);
  return (
    <FormDialog
      title="Add a website"
      opened
      onClose={onClose}
      onSend={() => add.mutate(form.values)}
      action="Add"
      change={add}
      fields={form.names}
      disabled={form.values.url.trim() === ''}
    >
      <TextInput
        label="Address"
        type="url"
        placeholder="https://example.com/help"
        data-autofocus
        {...form.text('url')}
      />
      <Radio.Group label="What to read" {...form.pick('kind')}>
        <Stack gap="xs" mt={6}>
          <Radio value="site" label="The website" description="Every page below this address, at most 2,000." />
          <Radio value="page" label="Only this page" />
        </Stack>
      </Radio.Group>
      <ScheduleField form={form} />
      {form.values.kind === 'site' && (
        <details className="numbers">
          <summary>Choose paths</summary>
          <Stack gap="md" mt="sm">
            <PathFields form={form} />
          </Stack>
        </details>
      )}
    </FormDialog>
  );
};

/** Changes a source. A new form is created each time the dialog opens, so that it starts with the stored values. */
export const EditSource = ({ path, source, onClose }: { path: string; source: Source; onClose: () => void }) => {
  const { kind, name, schedule, include, exclude } = source;
  const save = useChange({
    run: (fields: Fields) =>
      call<Source>('PATCH', path, {
        body: {
          name: fields.name.trim(),
          ...(kind !== 'file' && { schedule: fields.schedule }),
          ...(kind === 'site' && { include: linesOf(fields.include), exclude: linesOf(fields.exclude) }),
        },
      }),
    invalidates: ['/assistants/'],
    done: ({ state }) => (state === 'waiting' ? 'Saved. The source is read again.' : 'Saved.'),
    quiet: true,
    after: onClose,
  });
  const stored = { ...NEW, kind, name, schedule, include: include.join('\n'), exclude: exclude.join('\n') };
  const form = useFields<Fields>(stored, save.error);
  return (
    <FormDialog
      title="Change the source"
      opened
      onClose={onClose}
      onSend={() => save.mutate(form.values)}
      action="Save"
      change={save}
      fields={form.names}
      disabled={form.values.name.trim() === ''}
    >
      <TextInput label="Name" maxLength={200} data-autofocus {...form.text('name')} />
      {kind !== 'file' && <ScheduleField form={form} />}
      {kind === 'site' && <PathFields form={form} />}
    </FormDialog>
  );
};

const isTooLarge = ({ name, size }: File): boolean => {
  if (size <= FILE_MAX_BYTES) return false;
  tellProblem(new Error(`“${name}” is larger than 20 MB. Split it, or make it smaller.`));
  return true;
};

/** Replaces the content of a file. */
export const useReplace = (path: string) => {
  const replace = useChange({
    run: (file: File) => call<Source>('PUT', withQuery(`${path}/file`, { name: file.name }), { file }),
    invalidates: ['/assistants/'],
    done: 'The file is replaced. It is being read, and the one before answers until then.',
  });
  const send = (file: File | null): void => {
    if (file && !isTooLarge(file)) replace.mutate(file);
  };
  return { send, isPending: replace.isPending };
};

/** Uploads files, one after the other. */
export const useUpload = (id: string) => {
  const upload = useChange({
    run: async (files: File[]) => {
      for (const file of files) {
        const path = withQuery(at`/assistants/${id}/source-files`, { name: file.name });
        await call<Source>('POST', path, { file });
      }
    },
    invalidates: ['/assistants/'],
    done: (_answer, { length }) => (length === 1 ? 'The file is added.' : `${length} files are added.`),
  });
  const send = (files: File[]): void => {
    if (files.length > 0 && !files.some(isTooLarge)) upload.mutate(files);
  };
  return { send, isPending: upload.isPending };
};
