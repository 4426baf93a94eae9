import { readable, textOn } from './colors.ts';
import type { Action, Settings } from './door.ts';
import { type Phrases, speak } from './phrases.ts';
import type { Item, Session } from './session.ts';
import css from './style.css?inline';
import { actionButton, icon, make, textNodes } from './text.ts';

/** `float`: a button that opens a panel. `page`: the whole page. `preview`: inside an element, without a service. */
export type Look = 'float' | 'page' | 'preview';

type Given = {
  look: Look;
  /** The element into which the widget is put. */
  parent: Element;
  settings: Settings;
  languages: (string | null | undefined)[];
  /** Gives the conversation. Called when the widget is opened or a message is sent, until there is one. */
  session: () => Session | null;
};

const BACKGROUNDS = { light: { paper: '#ffffff', raised: '#f1f3f6' }, dark: { paper: '#1b1e23', raised: '#282c33' } };
const NEAR_END_PX = 60;
const MESSAGE_MAX = 8_000;

/** The widget’s elements, in a shadow root, so that the styles of the page and of the widget do not mix. */
export class Widget {
  readonly host = document.createElement('parley-widget');
  readonly #given: Given;
  readonly #say: Phrases;
  readonly #tag: string;
  readonly #root: HTMLElement;
  readonly #launch: HTMLButtonElement;
  readonly #badge = make('span', { class: 'badge', hidden: true });
  readonly #panel: HTMLElement;
  readonly #state = make('div', { class: 'state', hidden: true });
  readonly #log: HTMLElement;
  readonly #alert = make('div', { class: 'alert', role: 'status', hidden: true });
  readonly #spoken = make('div', { class: 'sr', 'aria-live': 'polite', role: 'status' });
  readonly #field: HTMLTextAreaElement;
  readonly #go: HTMLButtonElement;
  readonly #shown = new Map<string, { element: HTMLElement; as: string }>();
  readonly #dark = matchMedia('(prefers-color-scheme: dark)');
  readonly #ended = new AbortController();
  #settings: Settings;
  #session: Session | null = null;
  #unseen = 0;
  isOpen = false;

  constructor(given: Given) {
    this.#given = given;
    this.#settings = given.settings;
    const { look } = given;
    const { say, tag, rightToLeft } = speak(given.languages);
    this.#say = say;
    this.#tag = tag;

    this.#launch = make('button', { class: 'launch', type: 'button', 'aria-haspopup': 'dialog' });
    this.#field = make('textarea', { rows: 1, 'aria-label': say.placeholder, placeholder: say.placeholder });
    this.#field.maxLength = MESSAGE_MAX;
    this.#go = make('button', { class: 'go', 'aria-label': say.send, disabled: true }, icon('send'));
    this.#log = make('div', { class: 'log', role: 'log', 'aria-live': 'off', tabindex: 0, 'aria-label': say.messages });
    this.#panel = this.#makePanel();
    this.#root = make('div', { class: 'root', lang: tag, dir: rightToLeft ? 'rtl' : 'ltr' });
    if (look !== 'page') this.#root.append(this.#launch);
    this.#root.append(this.#panel, this.#spoken);

    const shadow = this.host.attachShadow({ mode: 'open' });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    shadow.adoptedStyleSheets = [sheet];
    shadow.append(this.#root);
    this.#launch.addEventListener('click', () => (this.isOpen ? this.close() : this.open()));
    this.#dark.addEventListener('change', () => this.restyle(this.#settings), { signal: this.#ended.signal });
    this.restyle(given.settings);
    if (look === 'page' || look === 'preview') this.#show(true);
    else this.#show(false);
    this.render([]);
    given.parent.append(this.host);
  }

  #makePanel(): HTMLElement {
    const { look } = this.#given;
    const title = make('h2', { id: 'title' });
    const head = make('div', { class: 'head' }, make('div', { class: 'face' }, icon('chat')));
    head.append(make('div', { class: 'names' }, title, this.#state));
    if (look === 'float') {
      const close = make('button', { class: 'close', type: 'button', 'aria-label': this.#say.close }, icon('close'));
      close.addEventListener('click', () => this.close());
      head.append(close);
    }
    const form = make('form', { class: 'write' }, this.#field, this.#go);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#send(this.#field.value);
    });
    this.#field.addEventListener('keydown', (event) => {
      // While a word is composed (Japanese, Chinese, …), Enter ends the word.
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send(this.#field.value);
    });
    this.#field.addEventListener('input', () => this.#fit());
    const panel = make(
      'section',
      { class: 'panel', role: look === 'float' ? 'dialog' : 'region', 'aria-labelledby': 'title' },
      head,
      this.#log,
      this.#alert,
      form,
    );
    panel.addEventListener('keydown', (event) => {
      event.stopPropagation(); // the page’s shortcuts are not for what is written here
      if (event.key === 'Escape' && look === 'float') this.close();
    });
    return panel;
  }

  /** Applies other settings. */
  restyle(settings: Settings): void {
    this.#settings = settings;
    const { accent, theme, side, title } = settings;
    const isDark = theme === 'dark' || (theme === 'auto' && this.#dark.matches);
    const { paper, raised } = BACKGROUNDS[isDark ? 'dark' : 'light'];
    // The button must stand out from the panel, and the page behind is most likely as light or dark as the panel.
    const filled = readable(accent, paper, 1.6);
    const names: Record<string, string> = {
      '--accent': filled,
      '--on-accent': textOn(filled),
      '--accent-text': readable(accent, paper, 4.5),
      '--accent-link': readable(accent, raised, 4.5),
      '--field': readable(isDark ? '#4a515c' : '#c3c9d2', paper, 3),
    };
    for (const [name, value] of Object.entries(names)) this.#root.style.setProperty(name, value);
    const { look } = this.#given;
    const isOpen = this.isOpen ? ' opened' : '';
    this.#root.className = `root ${look} ${side}${isDark ? ' dark' : ''}${isOpen}`;
    (this.#panel.querySelector('h2') as HTMLElement).textContent = title;
    this.#shown.clear();
    this.render([]);
  }

  #show(isOpen: boolean): void {
    this.isOpen = isOpen;
    this.#root.classList.toggle('opened', isOpen);
    this.#panel.hidden = !isOpen;
    this.#launch.replaceChildren(icon(isOpen ? 'down' : 'chat', 26), this.#badge);
    this.#launch.setAttribute('aria-label', isOpen ? this.#say.close : this.#say.open);
    this.#launch.setAttribute('aria-expanded', String(isOpen));
  }

  open(): void {
    if (this.isOpen) return;
    this.#show(true);
    this.#count(0);
    this.#session ??= this.#given.session();
    this.#session?.resume();
    this.render([]);
    this.#log.scrollTop = this.#log.scrollHeight;
    this.#field.focus();
  }

  close(): void {
    if (!this.isOpen || this.#given.look !== 'float') return;
    const hadFocus = this.host.shadowRoot?.activeElement;
    this.#show(false);
    if (hadFocus) this.#launch.focus();
  }

  remove(): void {
    this.#ended.abort();
    this.host.remove();
  }

  #count(unseen: number): void {
    this.#unseen = unseen;
    this.#badge.hidden = unseen === 0;
    this.#badge.textContent = unseen > 9 ? '9+' : String(unseen);
  }

  #fit(): void {
    this.#go.disabled = this.#field.value.trim() === '';
    this.#field.style.height = 'auto';
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }

  #send(text: string): void {
    if (text.trim() === '') return;
    this.#session ??= this.#given.session();
    if (!this.#session) return;
    if (text === this.#field.value) {
      this.#field.value = '';
      this.#fit();
    }
    this.#session.say([...text].slice(0, MESSAGE_MAX).join(''));
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  #press(action: Action): void {
    if (action.type === 'reply') this.#send(action.payload);
    else void this.#session?.escalate(action.payload);
    this.#field.focus();
  }

  /** Shows the conversation as it is now. A screen reader reads `news` aloud: what others have just said. */
  render(news: Item[], session = this.#session): void {
    this.#session = session;
    const isNearEnd = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < NEAR_END_PX;
    const items = this.#itemsOf(session);
    this.#place(items, session);
    this.#tellState(session);
    if (isNearEnd) this.#log.scrollTop = this.#log.scrollHeight;
    if (news.length === 0) return;
    this.#spoken.replaceChildren(...news.map(({ text }) => make('p', {}, text)));
    if (!this.isOpen) this.#count(this.#unseen + news.length);
  }

  /** A message that is sent again after a reload may be in the history already: then it is shown once. */
  #itemsOf(session: Session | null): Item[] {
    const all = session?.items ?? [];
    const others = new Set(all.flatMap(({ key, role, text }) => (role === 'visitor' && !key ? [text] : [])));
    return all.filter(({ key, turnId, text }) => !key || turnId !== null || !others.has(text));
  }

  #place(items: Item[], session: Session | null): void {
    const elements: HTMLElement[] = [];
    if (session?.hasEarlier) elements.push(this.#once('earlier', '', () => this.#makeEarlier()));
    else
      elements.push(this.#once('greeting', String(items.length === 0), () => this.#makeGreeting(items.length === 0)));
    const last = items.findLast(({ role }) => role !== 'visitor');
    for (const item of items) {
      const isLast = item === last && items.at(-1) === item;
      const as = `${item.text} ${item.state} ${item.role} ${isLast} ${item.actions.length}`;
      elements.push(this.#once(item.dom, as, () => this.#makeItem(item, isLast)));
    }
    const isAwaited =
      session?.status !== 'escalated' &&
      items.some(({ role, state, turnId }) => role === 'visitor' && state === 'sending' && turnId !== null) &&
      !items.some(({ state }) => state === 'writing');
    if (isAwaited) elements.push(this.#once('dots', '', () => this.#makeDots()));
    for (const name of this.#shown.keys()) {
      const { element } = this.#shown.get(name) as { element: HTMLElement };
      if (elements.includes(element)) continue;
      this.#shown.delete(name);
    }
    // Elements that are kept are not moved: a link that has the focus keeps it.
    const gone = Array.from(this.#log.children).filter((child) => !elements.includes(child as HTMLElement));
    for (const child of gone) child.remove();
    for (const [at, element] of elements.entries())
      if (this.#log.children[at] !== element) this.#log.insertBefore(element, this.#log.children[at] ?? null);
  }

  /** The element of this name, made again only if it looks different from before. */
  #once(name: string, as: string, build: () => HTMLElement): HTMLElement {
    const known = this.#shown.get(name);
    if (known?.as === as) return known.element;
    const element = build();
    this.#shown.set(name, { element, as });
    return element;
  }

  #makeEarlier(): HTMLElement {
    const button = make('button', { class: 'earlier', type: 'button' }, this.#say.earlier);
    button.addEventListener('click', () => void this.#readEarlier());
    return button;
  }

  async #readEarlier(): Promise<void> {
    const fromEnd = this.#log.scrollHeight - this.#log.scrollTop;
    await this.#session?.readEarlier();
    this.#log.scrollTop = this.#log.scrollHeight - fromEnd;
  }

  #makeGreeting(withStarters: boolean): HTMLElement {
    const { greeting, starters } = this.#settings;
    const item = make(
      'div',
      { class: 'item assistant' },
      make('div', { class: 'text' }, ...textNodes(greeting || this.#say.greeting)),
    );
    if (!withStarters || starters.length === 0) return item;
    const chips = starters.flatMap((payload) => {
      const chip = actionButton({ type: 'reply', label: payload, payload }, (one) => this.#press(one));
      return chip ? [chip] : [];
    });
    item.append(make('div', { class: 'actions' }, ...chips));
    return item;
  }

  #makeDots(): HTMLElement {
    const dots = make('div', { class: 'text dots' }, make('i'), make('i'), make('i'));
    return make('div', { class: 'item assistant' }, make('span', { class: 'sr' }, this.#say.writing), dots);
  }

  #makeItem(item: Item, isLast: boolean): HTMLElement {
    const { role, text, state, actions } = item;
    const element = make('div', { class: `item ${role} ${state}` });
    if (role === 'person') element.append(make('div', { class: 'who' }, this.#say.team));
    else
      element.append(
        make('span', { class: 'sr' }, role === 'visitor' ? `${this.#say.you}: ` : `${this.#settings.title}: `),
      );
    element.append(make('div', { class: 'text' }, ...textNodes(text)));
    if (state === 'failed') element.append(this.#makeFailure(item));
    const buttons = actions
      .filter(({ type }) => isLast || (type !== 'reply' && type !== 'escalate'))
      .flatMap((action) => actionButton(action, (one) => this.#press(one)) ?? []);
    if (buttons.length > 0) element.append(make('div', { class: 'actions' }, ...buttons));
    return element;
  }

  #makeFailure(item: Item): HTMLElement {
    const again = make('button', { type: 'button' }, this.#say.retry);
    again.addEventListener('click', () => this.#session?.again(item));
    return make('div', { class: 'note' }, this.#say.notSent, again);
  }

  #tellState(session: Session | null): void {
    const isWithPerson = session?.status === 'escalated';
    const opens = session?.opensAt ?? null;
    this.#state.hidden = !isWithPerson;
    this.#state.classList.toggle('away', opens !== null);
    this.#write(this.#state, opens === null ? this.#say.person : this.#say.away.replace('{time}', this.#timeOf(opens)));
    const alert = session?.needsReload ? this.#say.reload : session && !session.online ? this.#say.offline : '';
    this.#alert.hidden = alert === '';
    this.#write(this.#alert, alert);
  }

  /** Writes only a changed text, because a screen reader reads a live region again whenever it is written. */
  #write(element: HTMLElement, text: string): void {
    if (element.textContent !== text) element.textContent = text;
  }

  #timeOf(at: string): string {
    const format = { weekday: 'long', hour: 'numeric', minute: '2-digit' } as const;
    return new Intl.DateTimeFormat(this.#tag, format).format(new Date(at));
  }
}
