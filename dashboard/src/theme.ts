import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from '@mantine/core';

const ink: MantineColorsTuple = [
  '#eef0ff',
  '#dcdffb',
  '#b6bcf2',
  '#8e97ea',
  '#6c77e3',
  '#5762df',
  '#4a56d0',
  '#3f4abf',
  '#353fa6',
  '#2b348c',
];

const dark: MantineColorsTuple = [
  '#e6e7ea',
  '#c3c5cb',
  '#9a9da6',
  '#73767f',
  '#3a3d45',
  '#2c2f36',
  '#22252b',
  '#17191d',
  '#121417',
  '#0d0e10',
];

const FONTS = 'ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

export const theme = createTheme({
  primaryColor: 'ink',
  primaryShade: 6,
  colors: { ink, dark },
  defaultRadius: 'md',
  fontFamily: FONTS,
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace',
  headings: { fontFamily: FONTS, fontWeight: '600', sizes: { h1: { fontSize: '1.375rem' }, h2: { fontSize: '1rem' } } },
  cursorType: 'pointer',
  respectReducedMotion: true,
  components: {
    Tooltip: { defaultProps: { withArrow: true, openDelay: 200 } },
    Modal: { defaultProps: { centered: true, overlayProps: { backgroundOpacity: 0.4, blur: 1 } } },
    Menu: { defaultProps: { shadow: 'md', withinPortal: true } },
  },
});

/**
 * Mantine's light greys and reds have too little contrast. These colours have at least 4.5 to 1 on both backgrounds.
 */
export const cssVariables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    '--mantine-color-dimmed': '#5b616b',
    '--mantine-color-placeholder': '#6b717b',
    '--mantine-color-error': '#c42b2b',
    '--mantine-color-anchor': '#3f4abf',
    '--line': '#e4e6ea',
    '--surface': '#ffffff',
    '--sunken': '#f6f7f9',
    '--good': '#1a7f4b',
    '--fair': '#7fb89a',
    '--bad': '#c42b2b',
    '--warn': '#96590a',
    '--calm': '#5b616b',
  },
  dark: {
    '--mantine-color-dimmed': '#9a9da6',
    '--mantine-color-placeholder': '#8a8d96',
    '--mantine-color-error': '#ff8f8f',
    '--mantine-color-anchor': '#a3abf0',
    '--line': '#2c2f36',
    '--surface': '#1b1d22',
    '--sunken': '#121417',
    '--good': '#5fd39a',
    '--fair': '#357a58',
    '--bad': '#ff8f8f',
    '--warn': '#f0b95e',
    '--calm': '#9a9da6',
  },
});
