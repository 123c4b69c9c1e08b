// Writes animated PNG files. A frame stores only the rectangle that differs from the previous one.

import { deflateSync } from 'node:zlib';
import { PNG } from 'pngjs';

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/**
 * Encodes frames `{ png, ms }` of one size, each with its duration, as an endless animation. It has
 * at most 256 colors.
 */
export function animated(frames) {
  const distinct = mergeEqual(frames.map(({ png, ms }) => ({ image: PNG.sync.read(png), ms })));
  const { width, height } = distinct[0].image;
  const { colors, indexOf } = palette(distinct);
  const chunks = [
    // 8 bits for each pixel: its index in the palette.
    chunk('IHDR', Buffer.concat([uint32(width, height), Buffer.from([8, 3, 0, 0, 0])])),
    chunk('PLTE', Buffer.from(colors.flatMap((color) => [color >> 16, (color >> 8) & 0xff, color & 0xff]))),
    chunk('acTL', uint32(distinct.length, 0)),
  ];
  let sequence = 0;
  distinct.forEach(({ image, ms, area }, index) => {
    chunks.push(chunk('fcTL', Buffer.concat([
      uint32(sequence++, area.width, area.height, area.x, area.y),
      // The delay in milliseconds; the next frame is drawn over this one.
      uint16(ms, 1000), Buffer.from([0, 0]),
    ])));
    const data = pixels(image, area, indexOf);
    chunks.push(index === 0 ? chunk('IDAT', data) : chunk('fdAT', Buffer.concat([uint32(sequence++), data])));
  });
  return Buffer.concat([SIGNATURE, ...chunks, chunk('IEND', Buffer.alloc(0))]);
}

/**
 * The most frequent colors, and a function that finds the nearest one. All but the first differ
 * clearly from each other, so that rare ones (of a small icon) are included.
 */
function palette(frames) {
  const counts = new Map();
  for (const { image, area } of frames) {
    forEachPixel(image, area, (at) => {
      const color = image.data.readUIntBE(at, 3);
      counts.set(color, (counts.get(color) ?? 0) + 1);
    });
  }
  const colors = [];
  for (const [color] of [...counts].sort(([, one], [, other]) => other - one)) {
    if (colors.length === 256) break;
    if (colors.length < SIMILAR_COLORS || colors.every((chosen) => distance(chosen, color) >= CLEAR_DISTANCE)) colors.push(color);
  }
  const indexes = new Map();
  const nearest = (color) => {
    const distances = colors.map((chosen) => distance(chosen, color));
    return distances.indexOf(Math.min(...distances));
  };
  const indexOf = (color) => {
    if (!indexes.has(color)) indexes.set(color, nearest(color));
    return indexes.get(color);
  };
  return { colors, indexOf };
}

/** The number of colors that may be similar: backgrounds. */
const SIMILAR_COLORS = 64;

/** With this distance, 256 colors suffice for the console. */
const CLEAR_DISTANCE = 12 ** 2;

/** The square of the distance of two colors. */
function distance(one, other) {
  const channel = (shift) => ((one >> shift) & 0xff) - ((other >> shift) & 0xff);
  return channel(16) ** 2 + channel(8) ** 2 + channel(0) ** 2;
}

/** Calls `visit` with the offset of each pixel of a rectangle in the image's data. */
function forEachPixel({ width }, area, visit) {
  for (let y = area.y; y < area.y + area.height; y += 1) {
    for (let x = area.x; x < area.x + area.width; x += 1) visit(4 * (y * width + x));
  }
}

/** Adds the time of a frame that equals the previous one to that one. */
function mergeEqual(frames) {
  const distinct = [];
  for (const frame of frames) {
    const last = distinct.at(-1);
    const area = last ? difference(last.image, frame.image) : { x: 0, y: 0, width: frame.image.width, height: frame.image.height };
    if (area) distinct.push({ ...frame, area });
    else last.ms += frame.ms;
  }
  return distinct;
}

/** The smallest rectangle that contains all differing pixels. `undefined` if there are none. */
function difference(before, after) {
  const { width, height } = after;
  const [old, now] = [before, after].map(({ data }) => new Uint32Array(data.buffer, data.byteOffset, width * height));
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (old[y * width + x] === now[y * width + x]) continue;
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      [top, bottom] = [Math.min(top, y), y];
    }
  }
  return right < 0 ? undefined : { x: left, y: top, width: right - left + 1, height: bottom - top + 1 };
}

/** The compressed rows of a rectangle, each after its filter type (none). */
function pixels(image, area, indexOf) {
  const rows = Buffer.alloc(area.height * (area.width + 1));
  let end = 0;
  forEachPixel(image, area, (at) => {
    if (end % (area.width + 1) === 0) end += 1;
    rows[end] = indexOf(image.data.readUIntBE(at, 3));
    end += 1;
  });
  return deflateSync(rows, { level: 9 });
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  return Buffer.concat([uint32(data.length), body, uint32(crc(body))]);
}

function uint32(...numbers) {
  const bytes = Buffer.alloc(4 * numbers.length);
  numbers.forEach((number, index) => bytes.writeUInt32BE(number, 4 * index));
  return bytes;
}

function uint16(...numbers) {
  const bytes = Buffer.alloc(2 * numbers.length);
  numbers.forEach((number, index) => bytes.writeUInt16BE(number, 2 * index));
  return bytes;
}

/** CRC-32, as PNG defines it. */
function crc(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  }
  return (sum ^ 0xffffffff) >>> 0;
}
