import { Text } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import type { WebChannel } from '../../types.ts';

type Settings = Pick<WebChannel, 'title' | 'greeting' | 'starters' | 'accent' | 'theme' | 'side'>;
type Shown = { update: (settings: Settings) => void; remove: () => void };
type Preview = { preview: (parent: Element, given: { settings: Settings; language?: string }) => Shown };

let loading: Promise<Preview> | undefined;

const within = (): Preview | undefined => (window as unknown as { Parley?: Preview }).Parley;

/** Loads the script that visitors’ pages load. It says when it is ready only by its name in the window. */
const load = (): Promise<Preview> =>
  (loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = '/widget.js';
    script.dataset.preview = '';
    const fail = (): void => {
      loading = undefined;
      reject(new Error('the widget is not there'));
    };
    script.addEventListener('error', fail);
    script.addEventListener('load', () => {
      const until = Date.now() + 10_000;
      const look = (): void => {
        const ready = within();
        if (ready) resolve(ready);
        else if (Date.now() > until) fail();
        else window.setTimeout(look, 50);
      };
      look();
    });
    document.head.append(script);
  }));

/** The widget itself, as these settings make it look. */
export const WidgetPreview = ({ settings }: { settings: Settings }) => {
  const place = useRef<HTMLDivElement>(null);
  const shown = useRef<Shown | null>(null);
  const latest = useRef(settings);
  const [failed, setFailed] = useState(false);
  latest.current = settings;

  useEffect(() => {
    let left = false;
    const show = async (): Promise<void> => {
      const { preview } = await load();
      if (left || !place.current) return;
      shown.current = preview(place.current, { settings: latest.current, language: navigator.language });
    };
    show().catch(() => setFailed(true));
    return () => {
      left = true;
      shown.current?.remove();
      shown.current = null;
    };
  }, []);
  useEffect(() => shown.current?.update(settings), [settings]);

  if (failed) {
    return (
      <Text size="sm" c="dimmed">
        The preview could not be loaded. The widget may not be built on this server.
      </Text>
    );
  }
  return <div ref={place} className="widget-preview" role="group" aria-label="Preview" />;
};
