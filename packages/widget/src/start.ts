import { Door, type Settings, type User } from './door.ts';
import { Session } from './session.ts';
import { Widget } from './widget.ts';

/** What a page may call, as `window.Parley`. It is the only name that the widget adds to the page. */
type Parley = {
  open: () => void;
  close: () => void;
  /** To call when another user has signed in, or with null when the user has signed out. */
  identify: (user: User | null) => void;
};

/** What the dashboard calls to show the widget as it will be. */
type Preview = {
  preview: (
    parent: Element,
    given: { settings: Settings; language?: string },
  ) => { update: (settings: Settings) => void; remove: () => void };
};

declare global {
  interface Window {
    Parley?: Parley | Preview;
  }
}

const preview: Preview['preview'] = (parent, { settings, language }) => {
  const widget = new Widget({ look: 'preview', parent, settings, languages: [language], session: () => null });
  return { update: (changed) => widget.restyle(changed), remove: () => widget.remove() };
};

const userOf = ({ userId, userExpires, userSignature }: DOMStringMap): User | null =>
  userId && userSignature ? { id: userId, expires: Number(userExpires), signature: userSignature } : null;

/** The script that the page has included names the assistant. The service is where the script came from. */
export const start = async (script: HTMLScriptElement): Promise<void> => {
  if (window.Parley) return;
  const { dataset, src } = script;
  if (dataset.preview !== undefined) return void (window.Parley = { preview });

  const assistantId = dataset.assistant ?? '';
  const door = new Door(new URL(src).origin, assistantId);
  let user = userOf(dataset);
  let session: Session | null = null;
  let isWanted = false;
  let widget: Widget | null = null;

  const begin = (): Session => {
    session ??= new Session(door, {
      assistantId,
      user,
      changed: (news) => widget?.render(news, session),
    });
    return session;
  };
  window.Parley = {
    open: () => (widget ? widget.open() : (isWanted = true)),
    close: () => widget?.close(),
    identify: (given) => {
      user = given;
      session?.end();
      session = null;
      widget?.render([], widget.isOpen ? begin() : null);
      if (widget?.isOpen) begin().resume();
    },
  };

  const settings = await door.settings().catch((cause: unknown) => {
    // oxlint-disable-next-line no-console -- for the person who includes the widget
    console.warn('Parley: the web channel of this assistant is off, or this origin is not allowed.', cause);
    return null;
  });
  if (!settings) return;
  if (document.readyState === 'loading')
    await new Promise((resolve) => document.addEventListener('DOMContentLoaded', resolve, { once: true }));
  const isPage = dataset.view === 'page';
  const { lang } = document.documentElement;
  widget = new Widget({
    look: isPage ? 'page' : 'float',
    parent: document.body,
    settings: { ...settings, theme: (dataset.theme as Settings['theme'] | undefined) ?? settings.theme },
    languages: [dataset.language, lang, ...navigator.languages],
    session: begin,
  });
  // A visitor who comes back gets what was said meanwhile. One who never wrote causes no further request.
  const known = begin();
  widget.render([], known);
  if (isPage) known.resume();
  if (isWanted) widget.open();
};
