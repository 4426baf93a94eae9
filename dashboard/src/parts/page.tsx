import { Anchor, Box, Group, Stack, Text, Title } from '@mantine/core';
import { useDocumentTitle } from '@mantine/hooks';
import { type ReactNode, useEffect } from 'react';

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

/** A long page of sections, with a menu of them. An address with `#opening-hours` opens the page there. */
export const Sections = ({ titles, children }: { titles: readonly string[]; children: ReactNode }) => {
  useEffect(() => {
    document.getElementById(window.location.hash.slice(1))?.scrollIntoView();
  }, []);
  return (
    <div className="sections">
      <nav className="sections-menu" aria-label="On this page">
        {titles.map((title) => (
          <Anchor key={title} href={`#${idOf(title)}`} size="sm" c="dimmed">
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
};

/** A card of a page. With `flush`, the content has no padding; lists use this. */
export const Section = ({ title, description, actions, children, flush = false }: SectionProps) => (
  <section className="card" aria-label={title} id={title && idOf(title)}>
    {(title !== undefined || actions !== undefined) && (
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
    )}
    <div className={flush ? 'card-flush' : 'card-body'}>{children}</div>
  </section>
);

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
