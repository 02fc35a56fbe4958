package main

import "context"

func idle(context.Context) ([]row, error) { return nil, nil }
