/** The scheme, hosts and path of a URL. Omits the user, the password and the options, which may contain secrets. */
export const withoutCredentials = (url: string): string => {
  const [scheme = '', rest = ''] = url.split(/:\/\/(.*)/s, 2);
  const where = rest.slice(rest.lastIndexOf('@') + 1).replace(/[?#].*/s, '');
  return rest === '' ? '…' : `${scheme}://${where}`;
};

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/**
 * Finds passwords in a URL and returns them encoded and decoded. Also works for text that is not a valid URL, because
 * libraries quote invalid URLs in their errors.
 */
const passwordsOf = (url: string): string[] => {
  const from = url.indexOf('//');
  const userinfo = from === -1 ? '' : url.slice(from + 2, Math.max(from + 2, url.lastIndexOf('@')));
  const password = userinfo.slice(userinfo.indexOf(':') + 1);
  const options = url
    .split(/[?&]/)
    .slice(1)
    .filter((option) => /password|secret|token/i.test(option.split('=', 1)[0] ?? ''))
    .map((option) => option.slice(option.indexOf('=') + 1).split('#', 1)[0] ?? '');
  return [password, ...options].flatMap((one) => [one, decoded(one)]);
};

/** The length of the shortest secret that is removed. Shorter secrets would match parts of ordinary words. */
const SHORTEST = 4;

/** The secrets in a process's settings: passwords in URLs, keys and tokens. No log line may contain these secrets. */
export const secretsIn = (environment: Record<string, string | undefined>): string[] => {
  const all = Object.entries(environment).flatMap(([name, value = '']) => {
    if (name.endsWith('_URL')) return passwordsOf(value);
    if (name === 'ENCRYPTION_KEY') return value.split(/[,:]/);
    return /TOKEN|SECRET|PASSWORD|_KEY$/.test(name) ? [value] : [];
  });
  return [...new Set(all)].filter((one) => one.length >= SHORTEST).toSorted((a, b) => b.length - a.length);
};
