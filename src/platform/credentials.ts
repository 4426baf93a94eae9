/** Scheme, hosts and path: neither user nor password, whatever they are made of, nor options, which may hold some too. */
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

/** As it stands there and as it is sent; also of what is hardly a URL any more, which some library will quote all the more. */
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

/** Shorter ones would be found in every other word. */
const SHORTEST = 4;

/** What of a process's settings must not be in any line it writes: passwords of its addresses, keys, tokens. */
export const secretsIn = (environment: Record<string, string | undefined>): string[] => {
  const all = Object.entries(environment).flatMap(([name, value = '']) => {
    if (name.endsWith('_URL')) return passwordsOf(value);
    if (name === 'ENCRYPTION_KEY') return value.split(/[,:]/);
    return /TOKEN|SECRET|PASSWORD/.test(name) ? [value] : [];
  });
  return [...new Set(all)].filter((one) => one.length >= SHORTEST).toSorted((a, b) => b.length - a.length);
};
