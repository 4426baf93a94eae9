package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

func Verify(rawBody []byte, header string, secrets []string, tolerance, now float64) bool {
	t, given := "", []string{}
	for _, part := range strings.Split(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name == "t" && t == "" {
			t = value
		} else if name == "v1" {
			given = append(given, value)
		}
	}
	seconds, err := strconv.ParseUint(t, 10, 40)
	if err != nil || math.Abs(now-float64(seconds)) > tolerance {
		return false
	}
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(append([]byte(t+"."), rawBody...))
		for _, v1 := range given {
			if hmac.Equal([]byte(v1), []byte(hex.EncodeToString(mac.Sum(nil)))) {
				return true
			}
		}
	}
	return false
}
