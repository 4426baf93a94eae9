/** The scheme, hosts and path of a URL. Omits the user, the password and the options, which may contain secrets. */
export const withoutCredentials = (url: string): string => {
  const [scheme = '', rest = ''] = url.split(/:\/\/(.*)/s, 2);
  const where = rest.slice(rest.lastIndexOf('@') + 1).replace(/[?#].*/s, '');
  return rest === '' ? '…' : `${scheme}://${where}`;
};

/** May be a token: eight characters with a digit, or sixteen in both cases. */
const isToken = (part: string): boolean =>
  (part.length >= 8 && /\d/.test(part)) || (part.length >= 16 && /[a-z]/.test(part) && /[A-Z]/.test(part));

/** The scheme and host of a customer's address, and its path without the parts that may be tokens. */
export const withoutTokens = (url: string): string => {
  const parsed = URL.parse(url);
  if (!parsed) return '…';
  const path = parsed.pathname.split('/').map((part) => (isToken(part) ? '…' : part));
  return `${parsed.protocol}//${parsed.host}${path.join('/')}`;
};

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/**
 * A user and a password as protocols send them: SMTP's PLAIN and LOGIN, and HTTP's Basic. Servers may repeat these
 * forms in an error.
 */
const sentForms = (user: string, password: string): string[] =>
  [`\0${user}\0${password}`, password, `${user}:${password}`].map((one) => Buffer.from(one).toString('base64'));

/**
 * Finds passwords in a URL and returns them encoded and decoded. Also works for text that is not a valid URL, because
 * libraries quote invalid URLs in their errors.
 */
const passwordsOf = (url: string): string[] => {
  const from = url.indexOf('//');
  const userinfo = from === -1 ? '' : url.slice(from + 2, Math.max(from + 2, url.lastIndexOf('@')));
  const colon = userinfo.indexOf(':');
  const password = userinfo.slice(colon + 1);
  const sent = colon === -1 || password === '' ? [] : sentForms(decoded(userinfo.slice(0, colon)), decoded(password));
  const options = url
    .split(/[?&]/)
    .slice(1)
    .filter((option) => /password|secret|token/i.test(option.split('=', 1)[0] ?? ''))
    .map((option) => option.slice(option.indexOf('=') + 1).split('#', 1)[0] ?? '');
  return [...sent, ...[password, ...options].flatMap((one) => [one, decoded(one)])];
};

/** The length of the shortest secret that is removed. Shorter secrets would match parts of ordinary words. */
const SHORTEST = 4;

/** The secrets in a process's settings: passwords in URLs, keys and tokens. No log line may contain these secrets. */
export const secretsIn = (environment: Record<string, string | undefined>): string[] => {
  const all = Object.entries(environment).flatMap(([name, value = '']) => {
    if (name === 'ALERT_WEBHOOK_URL') return [value, ...passwordsOf(value)]; // whoever knows it can post
    if (/_(URL|ENDPOINT)$/.test(name)) return passwordsOf(value);
    // The headers of the collector, as `name=value,name=value`.
    if (/^OTEL_.*_HEADERS$/.test(name))
      return value
        .split(',')
        .flatMap((header) => [header, decoded(header)].map((one) => one.slice(one.indexOf('=') + 1)));
    if (name === 'ENCRYPTION_KEY') return value.split(/[,:]/);
    return /TOKEN|SECRET|PASSWORD|_KEY$/.test(name) ? [value] : [];
  });
  return [...new Set(all)].filter((one) => one.length >= SHORTEST).toSorted((a, b) => b.length - a.length);
};

/** What an `Authorization` header carries as Bearer, however it is spelled. Null if it carries none. */
export const bearerIn = (authorization: string | undefined): string | null =>
  /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1] ?? null;
