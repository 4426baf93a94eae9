import { Anchor, Box, Group, Stack, Text, Title } from '@mantine/core';
import { useDocumentTitle } from '@mantine/hooks';
import { type ReactNode, useEffect } from 'react';
import { Icon } from './icon.tsx';

type PageProps = {
  title: string;
  description?: ReactNode;
  actions?: ReactNode;
  above?: ReactNode;
  children: ReactNode;
};

/** A page: title, one line of description, actions and content. */
export const Page = ({ title, description, actions, above, children }: PageProps) => {
  useDocumentTitle(`${title} · Parley`);
  return (
    <Stack gap="lg" className="page">
      <Box>
        {above}
        <Group className="page-head" justify="space-between" align="flex-start" gap="sm" wrap="nowrap">
          <Box className="page-name">
            <Title order={1} className="break">
              {title}
            </Title>
            {description !== undefined && (
              <Text c="dimmed" size="sm" mt={4} maw="76ch" component="div">
                {description}
              </Text>
            )}
          </Box>
          {actions && (
            <Group gap="xs" wrap="nowrap">
              {actions}
            </Group>
          )}
        </Group>
      </Box>
      {children}
    </Stack>
  );
};

/** Where a section is on its page: `#opening-hours`. */
const idOf = (title: string): string => title.toLowerCase().replaceAll(' ', '-');

/** Goes to a section, and unfolds it. */
const reveal = (id: string): void => {
  const place = document.getElementById(id);
  place?.querySelector(':scope > details')?.setAttribute('open', '');
  place?.scrollIntoView();
};

/** A long page of sections, with a menu of them. An address with `#opening-hours` opens the page there. */
export const Sections = ({ titles, children }: { titles: readonly string[]; children: ReactNode }) => {
  useEffect(() => {
    reveal(window.location.hash.slice(1));
  }, []);
  return (
    <div className="sections">
      <nav className="sections-menu" aria-label="On this page">
        {titles.map((title) => (
          <Anchor key={title} href={`#${idOf(title)}`} size="sm" c="dimmed" onClick={() => reveal(idOf(title))}>
            {title}
          </Anchor>
        ))}
      </nav>
      <Stack gap="lg">{children}</Stack>
    </div>
  );
};

type SectionProps = {
  title?: string;
  description?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  flush?: boolean;
  folded?: boolean;
};

const Head = ({ title, description, actions }: Omit<SectionProps, 'children'>) => (
  <Group className="card-head" justify="space-between" gap="sm">
    <Box className={description === undefined ? 'grow' : 'grow card-says'}>
      {title !== undefined && <Title order={2}>{title}</Title>}
      {description !== undefined && (
        <Text c="dimmed" size="sm" mt={2} maw="76ch" component="div">
          {description}
        </Text>
      )}
    </Box>
    {actions !== undefined && <Group gap="xs">{actions}</Group>}
  </Group>
);

/** A card of a page. With `flush`, the content has no padding; lists use this. With `folded`, a click opens it. */
export const Section = ({ children, flush = false, folded = false, ...head }: SectionProps) => {
  const { title, actions } = head;
  const body = <div className={flush ? 'card-flush' : 'card-body'}>{children}</div>;
  return (
    <section className="card" aria-label={title} id={title && idOf(title)}>
      {folded ? (
        <details className="card-fold">
          <summary>
            <Head {...head} actions={<Icon name="chevron" />} />
          </summary>
          {body}
        </details>
      ) : (
        <>
          {(title !== undefined || actions !== undefined) && <Head {...head} />}
          {body}
        </>
      )}
    </section>
  );
};

/** A list of names and values. On a phone, each value is below its name. */
export const Facts = ({ facts }: { facts: Record<string, ReactNode> }) => (
  <dl className="facts">
    {Object.entries(facts).map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);
