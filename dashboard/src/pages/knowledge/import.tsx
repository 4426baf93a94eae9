import { Button, Checkbox, FileButton, Group, Modal, NativeSelect, Stack, Text, Textarea } from '@mantine/core';
import { useState } from 'react';
import { decodeText } from '../../../../src/platform/process/text-file.ts';
import { at, call } from '../../api.ts';
import { FormProblem, onSubmit, useFields } from '../../parts/form.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Status } from '../../parts/status.tsx';
import { tellProblem, useChange } from '../../query.ts';
import type { KnowledgeImport } from '../../types.ts';

const FORMATS = [
  { value: 'csv', label: 'CSV: columns question, answer, variants, language, tags, actions' },
  { value: 'json', label: 'JSON: a list of entries' },
  { value: 'markdown', label: 'Markdown: each heading is a question' },
];
const ENDINGS: Record<string, string> = { json: 'json', csv: 'csv', tsv: 'csv', md: 'markdown', markdown: 'markdown' };
const MOST_BYTES = 4_000_000;

const formatOf = (name: string): string | undefined => ENDINGS[/\.([a-z]+)$/i.exec(name)?.[1]?.toLowerCase() ?? ''];
const entries = (count: number): string => `${count} ${count === 1 ? 'entry' : 'entries'}`;

const Found = ({ result }: { result: KnowledgeImport }) => (
  <div role="status">
    <Status tone={result.imported > 0 ? 'good' : 'bad'}>{entries(result.imported)} can be imported</Status>
    {result.refused.length > 0 && (
      <>
        <Text size="sm" mt="xs">
          {result.refused.length} cannot be imported:
        </Text>
        <ul className="refused">
          {result.refused.slice(0, 50).map(({ line, reason }) => (
            <li key={`${line} ${reason}`}>
              <span className="num dim">line {line}</span> {reason}
            </li>
          ))}
        </ul>
      </>
    )}
  </div>
);

/** The dialog of an import. A dry run first shows the file's errors by line, before anything is imported. */
export const Import = ({ id, onClose }: { id: string; onClose: () => void }) => {
  const [checked, setChecked] = useState<KnowledgeImport | null>(null);
  const send = (dryRun: boolean): Promise<KnowledgeImport> =>
    call<KnowledgeImport>('POST', at`/assistants/${id}/knowledge-import`, { body: { ...form.values, dryRun } });
  const check = useChange({ run: (): Promise<KnowledgeImport> => send(true), quiet: true, after: setChecked });
  const bring = useChange({
    run: (): Promise<KnowledgeImport> => send(false),
    invalidates: ['/assistants/'],
    done: ({ imported }) => `${entries(imported)} imported.`,
    quiet: true,
    after: onClose,
  });
  const problem = bring.error ?? check.error;
  const form = useFields({ format: 'csv', text: '', replace: false }, problem);
  const { text, replace } = form.values;

  const read = async (file: File | null): Promise<void> => {
    if (!file) return;
    if (file.size > MOST_BYTES) return tellProblem(new Error('The file is larger than 4 MB. Import it in parts.'));
    setChecked(null);
    const format = formatOf(file.name);
    form.reset({
      ...form.values,
      text: decodeText(new Uint8Array(await file.arrayBuffer())),
      ...(format !== undefined && { format }),
    });
  };

  return (
    <Modal opened onClose={onClose} title="Import knowledge" size="lg" closeButtonProps={{ 'aria-label': 'Close' }}>
      <form onSubmit={onSubmit(() => (checked ? bring.mutate() : check.mutate()))} noValidate>
        <Stack gap="md">
          <FormProblem problem={problem} fields={form.names} />
          <Group gap="sm">
            <FileButton onChange={(file) => void read(file).catch(tellProblem)} accept=".csv,.tsv,.json,.md,.markdown">
              {(props) => (
                <Button variant="default" leftSection={<Icon name="upload" size={16} />} {...props}>
                  Choose a file
                </Button>
              )}
            </FileButton>
            <span className="dim">CSV, JSON or Markdown. Or paste the text below.</span>
          </Group>
          <NativeSelect
            label="Format"
            data={FORMATS}
            value={form.values.format}
            onChange={(event) => {
              setChecked(null);
              form.set('format', event.currentTarget.value);
            }}
          />
          <Textarea
            label="Text"
            classNames={{ input: 'mono' }}
            autosize
            minRows={6}
            maxRows={14}
            placeholder={'question,answer\nWhen are you open?,Monday to Friday from 8 to 18.'}
            value={text}
            onChange={(event) => {
              setChecked(null);
              form.set('text', event.currentTarget.value);
            }}
            {...form.errorOf('text')}
          />
          <Checkbox
            label="Replace all existing entries"
            description="The existing entries are removed after the new ones are imported."
            checked={replace}
            onChange={(event) => form.set('replace', event.currentTarget.checked)}
          />
          {checked && <Found result={checked} />}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            {checked && checked.imported > 0 ? (
              <Button type="submit" loading={bring.isPending} color={replace ? 'red.9' : 'ink'}>
                {replace ? `Replace all with ${entries(checked.imported)}` : `Import ${entries(checked.imported)}`}
              </Button>
            ) : (
              <Button type="submit" loading={check.isPending} disabled={text.trim() === '' || checked !== null}>
                Check
              </Button>
            )}
          </Group>
        </Stack>
      </form>
    </Modal>
  );
};
