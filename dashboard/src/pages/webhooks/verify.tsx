import { Button, Group, PasswordInput, Stack, Textarea, TextInput } from '@mantine/core';
import { useState } from 'react';
import { onSubmit, useFields } from '../../parts/form.tsx';
import { Section } from '../../parts/page.tsx';
import { Status } from '../../parts/status.tsx';
import { tellProblem } from '../../query.ts';
import { type Verdict, verify } from './signature.ts';

/** Helps developers of receivers: checks whether a signature header belongs to a body. */
export const Verify = () => {
  const form = useFields({ header: '', body: '', secret: '' });
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const { header, body, secret } = form.values;
  const check = (): void => {
    // Browsers offer cryptography only to pages over HTTPS or from localhost.
    if (!window.isSecureContext) return tellProblem(new Error('Your browser computes signatures only on HTTPS pages.'));
    verify(form.values).then(setVerdict, tellProblem);
  };
  return (
    <Section
      title="Verify a signature"
      description="Paste what your server received. Your browser checks it: nothing is sent, not even the secret."
    >
      <form onSubmit={onSubmit(check)}>
        <Stack gap="md">
          <TextInput
            label="X-Factory-Signature header"
            placeholder="t=1719410000,v1=5257a8…"
            classNames={{ input: 'mono' }}
            autoComplete="off"
            {...form.text('header')}
          />
          <Textarea
            label="Request body"
            placeholder={'{"event":"message.received",…}'}
            autosize
            minRows={3}
            maxRows={12}
            classNames={{ input: 'mono' }}
            {...form.text('body')}
          />
          <PasswordInput label="Signing secret" placeholder="whsec_…" autoComplete="off" {...form.text('secret')} />
          <Group gap="md">
            <Button type="submit" variant="default" disabled={header === '' || secret === ''}>
              Verify signature
            </Button>
            {body === '' && header !== '' && <span className="dim">The body is empty and is checked as empty.</span>}
          </Group>
          <div role="status" aria-live="polite">
            {verdict && (
              <div className={verdict.ok ? 'verdict verdict-good' : 'verdict verdict-bad'}>
                <Status tone={verdict.ok ? 'good' : 'bad'}>
                  <strong>{verdict.title}</strong>
                </Status>
                <p>{verdict.why}</p>
              </div>
            )}
          </div>
        </Stack>
      </form>
    </Section>
  );
};
